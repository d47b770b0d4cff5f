package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"sort"
	"strings"
)

const header = 8 // bytes of an event's header

type printer struct{ out *json.Encoder }

func newPrinter(out io.Writer) *printer {
	made := &printer{json.NewEncoder(out)}
	made.out.SetEscapeHTML(false)
	return made
}

func (p *printer) print(line any) {
	if err := p.out.Encode(line); err != nil {
		damaged("%v", err)
	}
}

type streamLine struct {
	Kind   string     `json:"kind"`
	Scope  string     `json:"scope"`
	Stream string     `json:"stream"`
	Sealed bool       `json:"sealed"`
	Tags   []string   `json:"tags"`
	Values []string   `json:"values"`
	Head   [][2]int64 `json:"head"`
	Tail   [][2]int64 `json:"tail"`
}

type contentLine struct {
	Kind    string `json:"kind"`
	Scope   string `json:"scope"`
	Stream  string `json:"stream"`
	Segment int64  `json:"segment"`
	Offset  int64  `json:"offset"`
	Data    string `json:"data"`
}

type attributeLine struct {
	Kind   string `json:"kind"`
	Scope  string `json:"scope"`
	Stream string `json:"stream"`
	Id     string `json:"id"`
	Value  int64  `json:"value"`
}

type entryLine struct {
	Kind      string `json:"kind"`
	Scope     string `json:"scope"`
	Table     string `json:"table"`
	Primary   string `json:"primary"`
	Secondary string `json:"secondary"`
	Value     string `json:"value"`
}

func text(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// all prints a root: scope by scope its streams, then its key-value tables.
func (p *printer) all(containers []*container) {
	streams, tables := map[string]func(){}, map[string]func(){}
	scopes := map[string]bool{}
	for _, each := range containers {
		c := each
		c.scan("_system/streams", func(key string, value []byte) {
			streams[key] = func() { p.stream(c, key, value) }
			scopes[strings.Split(key, "/")[0]] = true
		})
		c.scan("_system/key_value_tables", func(key string, value []byte) {
			tables[key] = func() { p.table(c, key, value) }
			scopes[strings.Split(key, "/")[0]] = true
		})
	}
	for _, scope := range sortedKeys(scopes) {
		for _, kind := range []map[string]func(){streams, tables} {
			for _, key := range sortedKeys(kind) {
				if strings.HasPrefix(key, scope+"/") {
					within(key, kind[key])
				}
			}
		}
	}
}

type epoch struct {
	number   int64
	segments []keyRange
}

type keyRange struct {
	id        int64
	low, high float64
}

func number(value any) float64 {
	if whole, ok := value.(int64); ok {
		return float64(whole)
	}
	return as[float64](value)
}

// epochs are stored as differences: the first one is whole, a later one has the segments that are new in it, or is a
// duplicate of an earlier one.
func epochs(plain any) []epoch {
	list := as[[]any](plain)
	first := fields(list[0], 4)
	current := epoch{number: as[int64](first[0])}
	for _, each := range as[[]any](first[3]) {
		f := fields(each, 3)
		current.segments = append(current.segments, keyRange{as[int64](f[0]), number(f[1]), number(f[2])})
	}
	found := []epoch{current}
	for _, each := range list[1:] {
		f := fields(each, 3)
		next := epoch{number: current.number + 1}
		if f[2] == nil {
			for _, like := range found[as[int64](f[1])-found[0].number].segments {
				next.segments = append(next.segments, keyRange{next.number<<32 | like.id&0xffffffff, like.low, like.high})
			}
		} else {
			for _, made := range as[[]any](f[2]) {
				m := fields(made, 3)
				next.segments = append(next.segments, keyRange{next.number<<32 | as[int64](m[0]), number(m[1]), number(m[2])})
			}
			for _, old := range current.segments {
				overlaps := false
				for _, made := range next.segments {
					overlaps = overlaps || made.id>>32 == next.number && made.low < old.high && old.low < made.high
				}
				if !overlaps {
					next.segments = append(next.segments, old)
				}
			}
		}
		found = append(found, next)
		current = next
	}
	return found
}

func (p *printer) stream(c *container, key string, value []byte) {
	record := as[dict](unpack(value))
	if version, _ := record.get("format"); version != int64(1) {
		damaged("its record has format %v", version)
	}
	get := func(name string) any { found, _ := record.get(name); return found }
	parts := strings.SplitN(key, "/", 2)
	line := streamLine{Kind: "stream", Scope: parts[0], Stream: parts[1], Sealed: as[bool](get("sealed"))}
	line.Tags, line.Values = texts(get("tags")), texts(get("values"))
	history := epochs(get("epochs"))
	for _, each := range as[dict](get("head")) {
		line.Head = append(line.Head, [2]int64{as[int64](each.key), as[int64](each.value)})
	}
	if len(line.Head) == 0 {
		for _, each := range history[0].segments {
			line.Head = append(line.Head, [2]int64{each.id, 0})
		}
	}
	segments := map[int64]*segment{}
	for _, each := range history {
		for _, one := range each.segments {
			name := key + "/" + decimal(one.id&0xffffffff) + ".#epoch." + decimal(one.id>>32)
			if found := c.find(name); found != nil {
				segments[one.id] = found
			}
		}
	}
	for _, one := range history[len(history)-1].segments {
		if segments[one.id] == nil {
			damaged("its segment %d is missing", one.id)
		}
		line.Tail = append(line.Tail, [2]int64{one.id, segments[one.id].length})
	}
	ascending(line.Head)
	ascending(line.Tail)
	p.print(line)
	if writers := c.find(key + "#writers"); writers != nil {
		found := c.extended(writers)
		for _, id := range sortedKeys(found) {
			p.print(attributeLine{"attribute", parts[0], parts[1], hex.EncodeToString([]byte(id)), found[id]})
		}
	}
	ids := make([]int64, 0, len(segments))
	for id := range segments {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	for _, id := range ids {
		within(segments[id].name, func() { p.content(c, parts[0], parts[1], id, segments[id]) })
	}
}

func texts(plain any) []string {
	found := []string{}
	if plain != nil {
		for _, each := range as[[]any](plain) {
			found = append(found, as[string](each))
		}
	}
	return found
}

func ascending(positions [][2]int64) {
	sort.Slice(positions, func(i, j int) bool { return positions[i][0] < positions[j][0] })
}

// content prints the events of a segment, or its bytes if it has no index, or they are no events.
func (p *printer) content(c *container, scope, stream string, id int64, s *segment) {
	data := c.readSegment(s, s.start, s.length)
	ends, ok := boundaries(data)
	if !ok {
		p.print(contentLine{"bytes", scope, stream, id, s.start, text(data)})
		return
	}
	c.checkIndex(s, ends)
	for i, end := range ends {
		start := 0
		if i > 0 {
			start = ends[i-1]
		}
		p.print(contentLine{"event", scope, stream, id, s.start + int64(start), text(data[start+header : end])})
	}
}

// boundaries are the ends of the events in data.
func boundaries(data []byte) ([]int, bool) {
	var ends []int
	for at := 0; at < len(data); {
		if at+header > len(data) || binary.BigEndian.Uint32(data[at:]) != 0 {
			return nil, false
		}
		length := int64(int32(binary.BigEndian.Uint32(data[at+4:])))
		if length < 0 || length > int64(len(data)-at-header) {
			return nil, false
		}
		at += header + int(length)
		ends = append(ends, at)
	}
	return ends, true
}

// checkIndex compares a segment's index with its events: each record has the end of an event, and its number.
func (c *container) checkIndex(s *segment, ends []int) {
	index := c.find(s.name + "#index")
	if index == nil {
		damaged("it has no index")
	}
	data := c.readSegment(index, index.start, index.length)
	if len(data)%32 != 0 {
		damaged("its index has %d bytes", len(data))
	}
	total := s.attributes[eventCount]
	numbers := map[int64]int64{s.start: total - int64(len(ends))}
	for i, end := range ends {
		numbers[s.start+int64(end)] = total - int64(len(ends)) + int64(i) + 1
	}
	append := int64(-1)
	for at := 0; at < len(data); at += 32 {
		offset, count := int64(binary.BigEndian.Uint64(data[at:])), int64(binary.BigEndian.Uint64(data[at+8:]))
		number := int64(binary.BigEndian.Uint64(data[at+24:]))
		if expected, known := numbers[offset]; offset >= s.start && (!known || expected != count) {
			damaged("its index has event %d at offset %d, where the events have %d", count, offset, expected)
		}
		if number < append {
			damaged("its index has append %d behind append %d", number, append)
		}
		append = number
	}
}

func (p *printer) table(c *container, key string, value []byte) {
	record := format(value)
	if len(record) < 7 {
		damaged("its record has %d fields", len(record))
	}
	if ready := as[bool](record[2]); !ready {
		return
	}
	parts := strings.SplitN(key, "/", 2)
	primary := as[int64](record[4])
	c.scan("_kvt/"+key+"/"+hex.EncodeToString(as[[]byte](record[0])), func(stored string, value []byte) {
		whole := []byte(unhex(stored))
		p.print(entryLine{"entry", parts[0], parts[1], text(whole[:primary]), text(whole[primary:]), text(value)})
	})
}

// checkDescription compares the root's description with its checksum: of the other fields as JSON with sorted keys.
func checkDescription(path string, data, key []byte) {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	all := map[string]any{}
	if err := decoder.Decode(&all); err != nil {
		damaged("%s: %v", path, err)
	}
	expected, _ := all["checksum"].(json.Number)
	delete(all, "checksum")
	if decimal(int64(crc([]byte(canonical(all))))) != expected.String() {
		damaged("%s: its checksum does not match", path)
	}
	checkSigned(path, all, key)
}

func canonical(value any) string {
	switch found := value.(type) {
	case map[string]any:
		var parts []string
		for _, key := range sortedKeys(found) {
			parts = append(parts, canonical(key)+": "+canonical(found[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, each := range found {
			parts = append(parts, canonical(each))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case json.Number:
		return found.String()
	case string:
		return quoted(found)
	case bool:
		if found {
			return "true"
		}
		return "false"
	}
	return "null"
}
