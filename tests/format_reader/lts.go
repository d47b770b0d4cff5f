package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"unicode/utf16"
)

const block = 1 << 20

// read returns the bytes [start, end) that extents hold, each block compared with its checksum.
func (c *container) read(extents []extent, start, end int64) []byte {
	found := make([]byte, 0, end-start)
	for _, each := range extents {
		if each.end() <= start || each.offset >= end {
			continue
		}
		low, high := max(start-each.offset, 0), min(end-each.offset, each.length)
		if each.offset+low != start+int64(len(found)) {
			damaged("the extents leave a gap at offset %d", start+int64(len(found)))
		}
		found = append(found, c.readExtent(each, low, high)...)
	}
	if int64(len(found)) != end-start {
		damaged("the extents have %d bytes of %d to %d", len(found), start, end)
	}
	return found
}

func (c *container) readExtent(e extent, low, high int64) []byte {
	switch e.source {
	case inStorage:
		return c.readStored(e.name, low, high)
	case inFrame:
		if c.key != nil {
			c.readLog(c.framePath(e.address)) // all of it, to check its signature
		}
		return c.readChecked(c.framePath(e.address), e.start+e.position, e.length, e.checksums, low, high)
	}
	return c.readChecked(filepath.Join(c.chunks, e.name), e.position, e.length, e.checksums, low, high)
}

// readChecked reads [low, high) of the length bytes at position of an object, in whole blocks.
func (c *container) readChecked(path string, position, length int64, checksums []byte, low, high int64) []byte {
	if int64(len(checksums)) != 4*((length+block-1)/block) {
		damaged("%s: %d bytes of checksums for %d bytes", path, len(checksums), length)
	}
	object, err := os.Open(path)
	if err != nil {
		damaged("%v", err)
	}
	defer object.Close()
	first := low / block * block
	last := min((high+block-1)/block*block, length)
	data := make([]byte, last-first)
	if _, err := object.ReadAt(data, position+first); err != nil {
		damaged("%s: %v", path, err)
	}
	for at := first; at < last; at += block {
		part := data[at-first : min(at+block, last)-first]
		if binary.BigEndian.Uint32(checksums[4*(at/block):]) != crc(part) {
			damaged("%s: the bytes from %d on do not match their checksum", path, position+at)
		}
	}
	return data[low-first : high-first]
}

// readSegment returns [start, end) of a segment.
func (c *container) readSegment(s *segment, start, end int64) []byte {
	var found []byte
	if middle := min(end, s.storageLength); start < middle {
		found = c.readStored(s.storage, start, middle)
		start = middle
	}
	if start < end {
		found = append(found, c.read(s.extents, start, end)...)
	}
	return found
}

// --- tables ---------------------------------------------------------------------------------------------------------

// lookup returns an entry's value, nil if there is none.
func (c *container) lookup(name, key string) []byte {
	found := c.state.tables[name]
	if found == nil {
		return nil
	}
	if recent, ok := found.recent[key]; ok {
		return recent.value
	}
	if !found.dropped || found.root == nil {
		return nil
	}
	wanted := []byte(key)
	if found.keyLength == 0 {
		sum := sha256.Sum256(wanted)
		wanted = sum[:16]
	}
	var value []byte
	c.walk(found, treePage{offset: found.root.offset, length: found.root.length}, wanted, func(at []byte, offset int64) {
		if bytes.Equal(at, wanted) {
			if stored, content := c.tableEntry(found, offset); stored == key {
				value = content
			}
		}
	})
	return value
}

// scan calls each with all live entries of a table.
func (c *container) scan(name string, each func(key string, value []byte)) {
	found := c.state.tables[name]
	if found == nil {
		return
	}
	all := map[string][]byte{}
	if found.dropped && found.root != nil {
		c.walk(found, treePage{offset: found.root.offset, length: found.root.length}, nil, func(_ []byte, offset int64) {
			key, value := c.tableEntry(found, offset)
			all[key] = value
		})
	}
	for key, recent := range found.recent {
		if recent.value == nil {
			delete(all, key)
		} else {
			all[key] = recent.value
		}
	}
	for _, key := range sortedKeys(all) {
		each(key, all[key])
	}
}

type treePage struct{ offset, length int64 }

// walk goes through the B+tree below a page: to the one leaf that may have a key, or to all of them.
func (c *container) walk(t *table, page treePage, wanted []byte, each func(key []byte, offset int64)) {
	data := c.read(t.pages, page.offset, page.offset+page.length)
	if len(data) < 14 || data[0] != 0 || data[1] > 1 {
		damaged("the index page at %d has an unknown form", page.offset)
	}
	id, count := binary.BigEndian.Uint32(data[2:]), int(binary.BigEndian.Uint32(data[6:]))
	if id != uint32(page.offset)&0x7fffffff || id != binary.BigEndian.Uint32(data[len(data)-4:]) {
		damaged("the index page at %d has id %d", page.offset, id)
	}
	body, inner := data[10:len(data)-4], data[1] == 1
	if count < 1 || len(body)%count != 0 {
		damaged("the index page at %d has %d entries", page.offset, count)
	}
	size, tail := len(body)/count, 8
	if inner {
		tail = 18
	}
	for i := 0; i < count; i++ {
		key, value := body[i*size:(i+1)*size-tail], body[(i+1)*size-tail:(i+1)*size]
		offset := int64(binary.BigEndian.Uint64(value))
		if !inner {
			each(key, offset)
			continue
		}
		last := i+1 == count || wanted != nil && bytes.Compare(wanted, body[(i+1)*size:(i+2)*size-tail]) < 0
		if wanted == nil || last {
			c.walk(t, treePage{offset, int64(binary.BigEndian.Uint16(value[8:]))}, wanted, each)
		}
		if wanted != nil && last {
			return
		}
	}
}

func (c *container) tableEntry(t *table, offset int64) (string, []byte) {
	header := c.read(t.entries, offset, offset+17)
	keyLength, valueLength := int64(int32(binary.BigEndian.Uint32(header[1:]))), int64(int32(binary.BigEndian.Uint32(header[5:])))
	if header[0] != 0 || keyLength < 0 || valueLength < 0 {
		damaged("the table entry at %d is none, or a removal", offset)
	}
	rest := c.read(t.entries, offset+17, offset+17+keyLength+valueLength)
	return string(rest[:keyLength]), rest[keyLength:]
}

// --- records of the chunk layer ---------------------------------------------------------------------------------------

type fieldReader struct{ data []byte }

func (r *fieldReader) take(n int) []byte {
	if n < 0 || n > len(r.data) {
		damaged("a record ends early")
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *fieldReader) long() int64   { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *fieldReader) boolean() bool { return r.take(1)[0] != 0 }

// compactInt: 1, 2 or 4 bytes, as the first bits 0, 10 or 11 say.
func (r *fieldReader) compactInt() int64 {
	switch first := r.data[0]; {
	case first < 0x80:
		return int64(r.take(1)[0])
	case first < 0xc0:
		return int64(binary.BigEndian.Uint16(r.take(2)) & 0x3fff)
	default:
		return int64(binary.BigEndian.Uint32(r.take(4)) & 0x3fffffff)
	}
}

// compactLong: 1, 2, 4 or 8 bytes, as the first two bits say.
func (r *fieldReader) compactLong() int64 {
	switch r.data[0] >> 6 {
	case 0:
		return int64(r.take(1)[0])
	case 1:
		return int64(binary.BigEndian.Uint16(r.take(2)) & 0x3fff)
	case 2:
		return int64(binary.BigEndian.Uint32(r.take(4)) & 0x3fffffff)
	default:
		return int64(binary.BigEndian.Uint64(r.take(8)) & 0x3fffffffffffffff)
	}
}

// compactSignedLong: 1, 2, 4 or 8 bytes: the sign, two bits with the size, and the value, which is inverted if it is negative.
func (r *fieldReader) compactSignedLong() int64 {
	sizes := [4]int{1, 2, 4, 8}
	first := r.data[0]
	var padded [8]byte
	size := sizes[first>>5&3]
	copy(padded[8-size:], r.take(size))
	padded[8-size] &= 0x1f
	value := int64(binary.BigEndian.Uint64(padded[:]))
	if first >= 0x80 {
		return -1 - value
	}
	return value
}

// utf is a string in Java's modified UTF-8: each UTF-16 unit by itself, and NUL as c0 80.
func (r *fieldReader) utf() string {
	data := r.take(int(binary.BigEndian.Uint16(r.take(2))))
	var units []uint16
	for i := 0; i < len(data); {
		b := data[i]
		switch {
		case b < 0x80:
			units = append(units, uint16(b))
			i++
		case b>>5 == 6 && i+1 < len(data):
			units = append(units, uint16(b&0x1f)<<6|uint16(data[i+1]&0x3f))
			i += 2
		case b>>4 == 14 && i+2 < len(data):
			units = append(units, uint16(b&0x0f)<<12|uint16(data[i+1]&0x3f)<<6|uint16(data[i+2]&0x3f))
			i += 3
		default:
			damaged("a string is not modified UTF-8")
		}
	}
	return string(utf16.Decode(units))
}

// revisions of a value of a known version, by their ids; kind: of a record of one of several types, 0 if it has none.
func revisions(data []byte, typed bool, known byte) (kind byte, found map[byte]*fieldReader) {
	r := &fieldReader{data}
	if r.take(1)[0] != 0 {
		damaged("a record does not begin with 0")
	}
	if typed {
		kind = r.take(1)[0]
	}
	version, count := r.take(1)[0], int(r.take(1)[0])
	if version != known {
		damaged("a record has version %d", version)
	}
	found = map[byte]*fieldReader{}
	for i := 0; i < count; i++ {
		id := r.take(1)[0]
		found[id] = &fieldReader{r.take(int(binary.BigEndian.Uint32(r.take(4))))}
	}
	if found[0] == nil {
		damaged("a record has no revision 0")
	}
	return kind, found
}

type storedSegment struct {
	length, count, start, status int64
	first, last                  string
	firstStart                   int64
	blocks                       []placedName
}

type placedName struct {
	start int64
	name  string
}

type chunkRecord struct {
	name      string
	length    int64
	next      string
	checksums []byte
}

func (c *container) storedSegment(name string) storedSegment {
	data := c.lookup(storageTable, name+"$segment")
	if data == nil {
		damaged("segment %s has no record in LTS", name)
	}
	kind, found := revisions(data, true, 0)
	if kind != 3 {
		damaged("the record of segment %s in LTS has type %d", name, kind)
	}
	r := found[0]
	var s storedSegment
	r.utf()
	s.length, s.count, s.start, s.status = r.compactLong(), r.compactInt(), r.compactLong(), r.compactInt()
	r.compactLong() // rolling length
	s.first, s.last = r.utf(), r.utf()
	r.compactLong() // last modified
	s.firstStart = r.compactLong()
	if added := found[1]; added != nil {
		s.blocks = names(added)
	}
	return s
}

func names(r *fieldReader) []placedName {
	var found []placedName
	for count := r.compactInt(); count > 0; count-- {
		start := r.compactLong()
		found = append(found, placedName{start, r.utf()})
	}
	return found
}

func (c *container) chunk(name string) chunkRecord {
	data := c.lookup(storageTable, name)
	if data == nil {
		damaged("chunk %s has no record", name)
	}
	kind, found := revisions(data, true, 0)
	if kind != 2 {
		damaged("the record of chunk %s has type %d", name, kind)
	}
	r := found[0]
	record := chunkRecord{name: r.utf(), length: r.compactLong(), next: r.utf()}
	if added := found[1]; added != nil {
		record.checksums = added.data
	}
	return record
}

// readStored returns [start, end) of a segment in LTS, by its name there.
func (c *container) readStored(name string, start, end int64) []byte {
	record := c.storedSegment(name)
	if start < record.start || end > record.length || record.status&1 == 0 {
		damaged("segment %s in LTS has no bytes %d to %d", name, start, end)
	}
	chunks := c.chunksOf(record)
	var found []byte
	for _, each := range chunks {
		at := start + int64(len(found))
		if each.end() > at && each.offset < end {
			low, high := at-each.offset, min(end-each.offset, each.length)
			found = append(found, c.readExtent(each, low, high)...)
		}
	}
	if int64(len(found)) != end-start {
		damaged("the chunks of segment %s do not have the bytes %d to %d", name, start, end)
	}
	return found
}

// chunksOf follows the links between the chunks, and compares them with the blocks.
func (c *container) chunksOf(record storedSegment) []extent {
	var found []extent
	starts := map[int64]string{}
	at := record.firstStart
	for name := record.first; name != ""; {
		each := c.chunk(name)
		found = append(found, extent{offset: at, source: inChunk, name: each.name, length: each.length, checksums: each.checksums})
		if each.length > 0 {
			starts[at] = name
		}
		at, name = at+each.length, each.next
	}
	if at != record.length || int64(len(found)) != record.count {
		damaged("the chunks end at %d of %d", at, record.length)
	}
	for _, each := range record.blocks {
		kind, block := revisions(c.lookup(storageTable, each.name), true, 0)
		if kind != 32 {
			damaged("block %s has type %d", each.name, kind)
		}
		block[0].utf()
		for _, entry := range names(block[0]) {
			if start := each.start + entry.start; start >= record.firstStart {
				if starts[start] != entry.name {
					damaged("block %s has another chunk at %d than the list", each.name, start)
				}
				delete(starts, start)
			}
		}
	}
	if len(starts) != 0 {
		damaged("%d chunks are in no block", len(starts))
	}
	return found
}

// parseSegment is a segment's entry in the metadata table.
func parseSegment(data []byte, sequence int64) *segment {
	_, found := revisions(data, false, 0)
	r := found[0]
	s := &segment{attributes: map[string]int64{}, touched: sequence}
	s.id, s.name, s.length, s.start, s.sealed = r.long(), r.utf(), r.long(), r.long(), r.boolean()
	for count := r.compactInt(); count > 0; count-- {
		id := string(r.take(16))
		s.attributes[id] = r.long()
	}
	if found[1] == nil {
		damaged("the entry of segment %s has no revision 1", s.name)
	}
	ours := format(found[1].data)
	if len(ours) < 8 {
		damaged("the entry of segment %s has %d fields", s.name, len(ours))
	}
	s.modified, s.storageLength, s.storage = as[int64](ours[0]), as[int64](ours[1]), as[string](ours[2])
	s.spilled, s.parent = as[bool](ours[5]), as[string](ours[7])
	for _, each := range as[dict](ours[6]) {
		s.attributes[as[string](each.key)] = as[int64](each.value)
	}
	return s
}

// find returns a segment, active or not, or nil.
func (c *container) find(name string) *segment {
	if found := c.state.segments[name]; found != nil {
		return found
	}
	if data := c.lookup(metadataTable, name); data != nil {
		return parseSegment(data, c.state.sequence)
	}
	return nil
}

// extended returns the extended attributes of a segment, in memory or spilled.
func (c *container) extended(s *segment) map[string]int64 {
	found := map[string]int64{}
	if s.spilled {
		prefix := hex16(s.id)
		c.scan(attributeTable, func(key string, value []byte) {
			if key[:16] == prefix {
				found[unhex(key[16:])] = int64(binary.BigEndian.Uint64(value))
			}
		})
	}
	for id, value := range s.attributes {
		if !isCore(id) {
			found[id] = value
		}
	}
	return found
}
