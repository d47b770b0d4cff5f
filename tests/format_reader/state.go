package main

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"regexp"
	"sort"
)

const (
	metadataTable  = "_system/containers/metadata"
	storageTable   = "_system/containers/storage_metadata"
	attributeTable = "_system/containers/attributes"
	nullValue      = math.MinInt64
	keyLengthOfIds = 48
)

// Core attributes begin with these 8 bytes; the last 8 are 1 for the number of events.
var (
	corePrefix = "\x80\x00\x00\x00\x00\x00\x00\x00"
	eventCount = corePrefix + "\x00\x00\x00\x00\x00\x00\x00\x01"
	created    = corePrefix + "\x00\x00\x00\x00\x00\x00\x00\x00"
)

const (
	inFrame = iota
	inChunk
	inStorage
)

// extent is a range of an object: of a frame's payload, of a chunk, or of a merged segment in LTS.
type extent struct {
	offset           int64 // in the segment
	source           int
	address, start   int64  // of a frame
	name             string // of a chunk or of a segment in LTS
	position, length int64
	checksums        []byte
}

func (e extent) end() int64 { return e.offset + e.length }

type segment struct {
	name              string
	id, start, length int64
	sealed            bool
	modified          int64
	attributes        map[string]int64
	extents           []extent
	storageLength     int64
	storage           string
	touched           int64
	spilled           bool
	parent            string
}

type entry struct {
	value   []byte // nil: it was removed
	version int64
}

type table struct {
	recent                  map[string]entry
	flushed                 int64
	dropped                 bool
	start, length           int64
	indexStart, indexLength int64
	root                    *treeRoot
	keyLength               int64
	entries, pages          []extent
}

type treeRoot struct{ offset, length int64 }

type state struct {
	sequence   int64
	segments   map[string]*segment
	unsaved    map[string]bool
	tables     map[string]*table
	transients map[string]string
}

func newState() *state {
	return &state{0, map[string]*segment{}, map[string]bool{}, map[string]*table{}, map[string]string{}}
}

// open sets the state to that of a checkpoint.
func (s *state) open(plain any) {
	all := fields(plain, 14)
	s.sequence = as[int64](all[0])
	for _, each := range as[dict](all[4]) {
		s.segments[as[string](each.key)] = segmentOf(each.value)
	}
	for _, name := range as[[]any](all[5]) {
		s.unsaved[as[string](name)] = true
	}
	for _, each := range as[dict](all[6]) {
		s.tables[as[string](each.key)] = tableOf(each.value)
	}
	for _, each := range as[dict](all[11]) {
		s.transients[as[string](each.key)] = as[string](each.value)
	}
}

func segmentOf(plain any) *segment {
	f := as[[]any](plain)
	if len(f) != 17 && len(f) != 18 { // the last one has what this reader need not know
		damaged("a segment has %d fields", len(f))
	}
	found := &segment{
		name: as[string](f[0]), id: as[int64](f[1]), start: as[int64](f[2]), length: as[int64](f[3]),
		sealed: as[bool](f[4]), modified: as[int64](f[5]), attributes: map[string]int64{}, extents: placed(f[8]),
		storageLength: as[int64](f[9]), storage: as[string](f[10]), touched: as[int64](f[13]),
		spilled: as[bool](f[15]), parent: as[string](f[16]),
	}
	for _, each := range as[dict](f[7]) {
		found.attributes[as[string](each.key)] = as[int64](each.value)
	}
	return found
}

// placed is a list of extents in a checkpoint: the offset of the first, and the extents.
func placed(plain any) []extent {
	list := as[[]any](plain)
	if len(list) == 0 {
		return nil
	}
	both := fields(list, 2)
	return appended(nil, as[int64](both[0]), extentsOf(both[1], nil))
}

func extentsOf(plain any, own *frame) []extent {
	var found []extent
	for _, each := range as[[]any](plain) {
		f := fields(each, 4)
		next := extent{position: as[int64](f[1]), length: as[int64](f[2]), checksums: as[[]byte](f[3])}
		switch object := f[0].(type) {
		case nil:
			if own == nil {
				damaged("an extent names no object")
			}
			next.address, next.start = own.address, own.payloadStart
		case string:
			next.source, next.name = inChunk, object
		case []any:
			if len(object) == 1 {
				next.source, next.name = inStorage, as[string](object[0])
			} else {
				both := fields(object, 2)
				next.address, next.start = as[int64](both[0]), as[int64](both[1])
			}
		}
		found = append(found, next)
	}
	return found
}

func appended(extents []extent, offset int64, added []extent) []extent {
	result := append([]extent{}, extents...)
	for _, each := range added {
		if each.length > 0 {
			each.offset = offset
			offset += each.length
			result = append(result, each)
		}
	}
	return result
}

// from leaves out the extents that end at or before offset.
func from(extents []extent, offset int64) []extent {
	var kept []extent
	for _, each := range extents {
		if each.end() > offset {
			kept = append(kept, each)
		}
	}
	return kept
}

func replaced(extents []extent, offset int64, by []extent) []extent {
	if len(by) == 0 {
		return extents
	}
	by = appended(nil, offset, by)
	end := by[len(by)-1].end()
	var result []extent
	for _, each := range extents {
		if each.end() <= offset {
			result = append(result, each)
		}
	}
	result = append(result, by...)
	for _, each := range extents {
		if each.offset >= end {
			result = append(result, each)
		}
	}
	return result
}

func tableOf(plain any) *table {
	f := fields(plain, 7)
	found := &table{recent: map[string]entry{}, flushed: as[int64](f[2]), dropped: as[bool](f[3])}
	for _, each := range as[dict](f[0]) {
		both := fields(each.value, 2)
		found.recent[as[string](each.key)] = entry{maybeBytes(both[0]), as[int64](both[1])}
	}
	found.layout(f[4])
	found.entries, found.pages = placed(f[5]), placed(f[6])
	return found
}

func (t *table) layout(plain any) {
	f := fields(plain, 8)
	t.start, t.length, t.indexStart, t.indexLength = as[int64](f[0]), as[int64](f[1]), as[int64](f[2]), as[int64](f[3])
	t.root, t.keyLength = nil, as[int64](f[7])
	if f[4] != nil {
		both := fields(f[4], 2)
		t.root = &treeRoot{as[int64](both[0]), as[int64](both[1])}
	}
}

func maybeBytes(value any) []byte {
	if value == nil {
		return nil
	}
	found := as[[]byte](value)
	if found == nil {
		found = []byte{}
	}
	return found
}

// apply applies the live frame f. skipped: its transactions that have no effect, by their places.
func (s *state) apply(f frame, skipped map[int64]bool) {
	if f.kind != kindData || len(f.meta) == 0 {
		return
	}
	for place, each := range as[[]any](unpack(f.meta)) {
		transaction := fields(each, 2)
		operations := as[[]any](transaction[1])
		if skipped[int64(place)] {
			s.sequence += int64(len(operations))
			continue
		}
		for _, operation := range operations {
			s.sequence++
			list := as[[]any](operation)
			s.operate(as[int64](list[0]), list[1:], as[int64](transaction[0]), &f)
		}
	}
}

func (s *state) operate(code int64, op []any, time int64, own *frame) {
	switch code {
	case 1: // Append
		op = fields(op, 5)
		target := s.segment(op[0])
		s.update(target, op[3])
		s.extend(target, extentsOf(op[1], own), time)
	case 2: // SealSegment
		target := s.segment(op[0])
		if !target.sealed {
			target.sealed, target.modified = true, time
			s.keep(target)
		}
	case 3: // MergeSegment
		target, source := s.segment(op[0]), s.segment(op[1])
		content := extentsOf(op[2], own)
		if source.storageLength > 0 {
			content = append(content, extent{source: inStorage, name: source.storage, length: source.storageLength})
		}
		if events := source.attributes[eventCount]; events != 0 {
			target.attributes[eventCount] += events
		}
		s.extend(target, append(content, source.extents...), time)
		s.drop(source)
	case 4: // CreateSegment
		op = fields(op, 3)
		made := &segment{name: as[string](op[0]), id: s.sequence, modified: time, parent: as[string](op[2])}
		made.attributes = map[string]int64{created: time}
		s.segments[made.name] = made
		s.update(made, op[1])
		if made.parent != "" {
			s.transients[made.name] = made.parent
		}
		s.keep(made)
	case 5: // PutEntry
		s.table(as[string](op[0])).recent[as[string](op[1])] = entry{maybeBytes(op[2]), s.sequence}
	case 6: // UpdateAttributes
		target := s.segment(op[0])
		s.update(target, op[1])
		target.modified = time
		s.keep(target)
	case 7: // TruncateSegment
		target, offset := s.segment(op[0]), as[int64](op[1])
		if offset > target.start {
			if offset > target.storageLength {
				target.storage, target.storageLength = "", offset
			}
			target.start, target.extents, target.modified = offset, from(target.extents, offset), time
			s.keep(target)
		}
	case 9: // RecordFlush
		op = fields(op, 6)
		target := s.segment(op[1])
		target.storage, target.storageLength = as[string](op[2]), as[int64](op[4])
		target.extents = from(target.extents, target.storageLength)
	case 10: // DeleteSegment
		s.drop(s.segment(op[0]))
	case 14: // ActivateSegment
		if name := as[string](op[0]); s.segments[name] == nil {
			s.segments[name] = parseSegment(as[[]byte](op[1]), s.sequence)
		}
	case 15: // EvictSegments
		for _, name := range as[[]any](op[0]) {
			if !s.unsaved[as[string](name)] {
				delete(s.segments, name.(string))
			}
		}
	case 16: // SaveSegments
		sequence := as[int64](op[1])
		for _, each := range as[[]any](op[2]) {
			record := fields(each, 3)
			name := as[string](record[0])
			found := s.segments[name]
			if found == nil || found.id != as[int64](record[1]) {
				continue
			}
			s.table(metadataTable).recent[name] = entry{as[[]byte](record[2]), sequence}
			if found.touched <= sequence {
				delete(s.unsaved, name)
			}
		}
	case 17: // SpillAttributes
		if target := s.segment(op[0]); target.parent == "" {
			for id, value := range target.attributes {
				if !isCore(id) {
					stored := binary.BigEndian.AppendUint64(nil, uint64(value))
					s.table(attributeTable).recent[attributeKey(target.id, id)] = entry{stored, s.sequence}
					delete(target.attributes, id)
				}
			}
			target.spilled = true
			s.keep(target)
		}
	case 18: // LoadAttributes
		target := s.segment(op[0])
		for _, each := range as[[]any](op[1]) {
			both := fields(each, 2)
			if id := string(as[[]byte](both[0])); !has(target.attributes, id) {
				target.attributes[id] = as[int64](both[1])
			}
		}
	case 23: // RecordTableFlush
		for _, each := range as[[]any](op[1]) {
			s.flushTable(fields(each, 10))
		}
	case 25: // ExpireSegments
		for _, name := range as[[]any](op[0]) {
			s.expire(as[string](name), as[int64](op[1]))
		}
	case 27: // StartSegment
		target := s.segment(op[0])
		target.start = as[int64](op[1])
		target.length, target.storageLength, target.storage, target.modified = target.start, target.start, "", time
		s.keep(target)
	case 29: // CreateTable
		s.tables[as[string](op[0])] = &table{recent: map[string]entry{}, flushed: -1, keyLength: as[int64](op[1])}
	case 30: // DeleteTable
		delete(s.tables, as[string](op[0]))
	case 8, 11, 12, 13, 19, 20, 21, 22, 24, 26, 28: // marks of flush cycles, garbage, conditions, answers
	default:
		damaged("operation %d is unknown: the log was written by a newer version", code)
	}
}

func has[V any](found map[string]V, key string) bool {
	_, ok := found[key]
	return ok
}

func (s *state) segment(name any) *segment {
	found := s.segments[as[string](name)]
	if found == nil {
		damaged("segment %v, which an operation is about, is not active", name)
	}
	return found
}

func (s *state) table(name string) *table {
	found := s.tables[name]
	if found == nil {
		found = &table{recent: map[string]entry{}, flushed: -1}
		if name == attributeTable {
			found.keyLength = keyLengthOfIds
		}
		s.tables[name] = found
	}
	return found
}

// keep marks a segment as changed since it was saved.
func (s *state) keep(changed *segment) {
	changed.touched = s.sequence
	s.unsaved[changed.name] = true
}

func (s *state) extend(target *segment, added []extent, time int64) {
	target.extents = appended(target.extents, target.length, added)
	for _, each := range added {
		target.length += each.length
	}
	target.modified = time
	s.keep(target)
}

// update updates attributes; their conditions held when the operation was logged.
func (s *state) update(target *segment, updates any) {
	for _, each := range as[[]any](updates) {
		f := fields(each, 4)
		id, value := string(as[[]byte](f[0])), as[int64](f[2])
		if as[int64](f[1]) == 3 { // accumulate
			value += target.attributes[id]
		}
		if value != nullValue {
			target.attributes[id] = value
			continue
		}
		delete(target.attributes, id)
		if target.spilled && !isCore(id) {
			s.table(attributeTable).recent[attributeKey(target.id, id)] = entry{nil, s.sequence}
		}
	}
}

// drop removes a segment, and the transient segments that were made for it.
func (s *state) drop(gone *segment) {
	delete(s.segments, gone.name)
	delete(s.unsaved, gone.name)
	delete(s.transients, gone.name)
	s.table(metadataTable).recent[gone.name] = entry{nil, s.sequence}
	for name, parent := range s.transients {
		if parent == gone.name {
			s.expire(name, math.MaxInt64)
		}
	}
}

func (s *state) expire(name string, before int64) {
	if _, known := s.transients[name]; !known {
		return
	}
	if found := s.segments[name]; found == nil {
		delete(s.transients, name)
	} else if found.modified < before {
		s.drop(found)
	}
}

func (s *state) flushTable(f []any) {
	found := s.tables[as[string](f[0])]
	if found == nil {
		return // deleted since
	}
	upto, keep := as[int64](f[1]), as[bool](f[9])
	end, indexEnd := found.length, found.indexLength
	found.layout(f[2])
	grown := func(extents []extent, end int64, added, at, merged any, start int64) []extent {
		extents = replaced(extents, as[int64](at), extentsOf(merged, nil))
		return from(appended(extents, end, extentsOf(added, nil)), start)
	}
	found.entries = grown(found.entries, end, f[3], f[5], f[6], found.start)
	found.pages = grown(found.pages, indexEnd, f[4], f[7], f[8], found.indexStart)
	found.flushed = upto
	for key, each := range found.recent {
		if each.version <= upto && (each.value == nil || !keep) {
			found.dropped = found.dropped || each.value != nil
			delete(found.recent, key)
		}
	}
}

func isCore(id string) bool { return id[:8] == corePrefix }

func attributeKey(segment int64, id string) string {
	return hex16(segment) + hex.EncodeToString([]byte(id))
}

var segmentName = regexp.MustCompile(`^(.+)\.#epoch\.(\d+)$`)

func sortedKeys[V any](found map[string]V) []string {
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
