package main

import (
	"encoding/binary"
	"math"
)

// A msgpack value is nil, bool, int64, float64, string, []byte, []any or a dict. The reader panics with a damage,
// which main prints: nothing that is printed before it is wrong, and nothing is printed after it.

type pair struct{ key, value any }

// dict is a map in its stored order.
type dict []pair

func (d dict) get(key any) (any, bool) {
	for _, each := range d {
		if each.key == key {
			return each.value, true
		}
	}
	return nil, false
}

type unpacker struct {
	data []byte
	at   int
}

func unpack(data []byte) any {
	u := &unpacker{data: data}
	value := u.value()
	if u.at != len(data) {
		damaged("msgpack value of %d bytes has %d more behind it", u.at, len(data)-u.at)
	}
	return value
}

func (u *unpacker) take(n int) []byte {
	if n < 0 || n > len(u.data)-u.at {
		damaged("msgpack value ends early, at byte %d", len(u.data))
	}
	u.at += n
	return u.data[u.at-n : u.at]
}

func (u *unpacker) unsigned(size int) uint64 {
	var padded [8]byte
	copy(padded[8-size:], u.take(size))
	return binary.BigEndian.Uint64(padded[:])
}

func (u *unpacker) length(size int) int { return int(u.unsigned(size)) }

func (u *unpacker) value() any {
	first := u.take(1)[0]
	switch {
	case first < 0x80:
		return int64(first)
	case first >= 0xe0:
		return int64(int8(first))
	case first < 0x90:
		return u.dict(int(first & 0x0f))
	case first < 0xa0:
		return u.list(int(first & 0x0f))
	case first < 0xc0:
		return string(u.take(int(first & 0x1f)))
	}
	switch first {
	case 0xc0:
		return nil
	case 0xc2, 0xc3:
		return first == 0xc3
	case 0xc4, 0xc5, 0xc6:
		return u.take(u.length(1 << (first - 0xc4)))
	case 0xca:
		return float64(math.Float32frombits(uint32(u.unsigned(4))))
	case 0xcb:
		return math.Float64frombits(u.unsigned(8))
	case 0xcc, 0xcd, 0xce, 0xcf:
		number := u.unsigned(1 << (first - 0xcc))
		if number > math.MaxInt64 {
			damaged("number %d has more than 63 bits", number)
		}
		return int64(number)
	case 0xd0, 0xd1, 0xd2, 0xd3:
		size := 1 << (first - 0xd0)
		shift := 64 - 8*size
		return int64(u.unsigned(size)<<shift) >> shift
	case 0xd9, 0xda, 0xdb:
		return string(u.take(u.length(1 << (first - 0xd9))))
	case 0xdc, 0xdd:
		return u.list(u.length(2 << (first - 0xdc)))
	case 0xde, 0xdf:
		return u.dict(u.length(2 << (first - 0xde)))
	}
	damaged("msgpack type %#x does not occur in this format", first)
	return nil
}

func (u *unpacker) list(count int) []any {
	if count > len(u.data)-u.at {
		damaged("a list of %d values does not fit", count)
	}
	found := make([]any, count)
	for i := range found {
		found[i] = u.value()
	}
	return found
}

func (u *unpacker) dict(count int) dict {
	if count > len(u.data)-u.at {
		damaged("a map of %d entries does not fit", count)
	}
	found := make(dict, count)
	for i := range found {
		key := u.value()
		if bytes, ok := key.([]byte); ok {
			key = string(bytes) // so that keys can be compared
		}
		found[i] = pair{key, u.value()}
	}
	return found
}

// as is a value of a type.
func as[T any](value any) T {
	found, ok := value.(T)
	if !ok {
		damaged("%T (%.60v) stands where %T is due", value, value, found)
	}
	return found
}

// fields is a list of exactly so many values.
func fields(value any, count int) []any {
	found := as[[]any](value)
	if len(found) != count {
		damaged("a list of %d values stands where %d are due", len(found), count)
	}
	return found
}

// format checks the number with which a record begins, and returns the rest.
func format(data []byte) []any {
	found := as[[]any](unpack(data))
	if len(found) == 0 || found[0] != int64(1) {
		damaged("a record has an unknown format")
	}
	return found[1:]
}
