package main

import (
	"encoding/hex"
	"strings"
)

// With -records: the other records of a root, one JSON document a line, by their tables and keys.

var recordTables = []struct {
	table string
	line  func(key string, value []byte) any
}{
	{"_system/scopes", scopeLine},
	{"_system/transactions", transactionLine},
	{"_system/groups", groupLine},
	{"_system/subscribers", func(key string, value []byte) any {
		return object{"kind": "subscriber", "key": key, "cut": cutOf(value)}
	}},
	{"_system/marks", func(key string, value []byte) any { return object{"kind": "mark", "key": key, "cut": cutOf(value)} }},
	{"_system/times", timesLine},
}

type object map[string]any

func (p *printer) records(containers []*container) {
	for _, each := range recordTables {
		found := map[string][]byte{}
		for _, c := range containers {
			c.scan(each.table, func(key string, value []byte) { found[key] = value })
		}
		for _, key := range sortedKeys(found) {
			within(each.table+", "+key, func() { p.print(each.line(key, found[key])) })
		}
	}
}

// cutOf is a stream cut in Pravega's binary form.
func cutOf(data any) object {
	_, found := revisions(as[[]byte](data), false, 1)
	r := found[0]
	stream, positions := r.utf(), [][2]int64{}
	for count := r.compactInt(); count > 0; count-- {
		segment := r.compactLong()
		positions = append(positions, [2]int64{segment, r.compactSignedLong()})
	}
	return object{"stream": stream, "positions": positions}
}

// listed has each value of a list, in another form.
func listed(plain any, form func(any) any) []any {
	found := []any{}
	for _, each := range as[[]any](plain) {
		found = append(found, form(each))
	}
	return found
}

func cuts(plain any) any { return listed(plain, func(cut any) any { return cutOf(cut) }) }

func scopeLine(key string, value []byte) any {
	return object{"kind": "scope", "key": key, "deleting": as[bool](format(value)[0])}
}

func transactionLine(key string, value []byte) any {
	f := format(value)
	routing := fields(f[0], 3)
	return object{
		"kind": "transaction", "key": key, "stream_id": hex.EncodeToString(as[[]byte](routing[0])), "reference": routing[1],
		"segments": routing[2], "created": f[1], "lease": f[2], "changed": f[3], "longest": f[4], "status": as[string](f[5]),
	}
}

func groupLine(key string, value []byte) any {
	record := as[dict](unpack(value))
	get := func(name string) any { found, _ := record.get(name); return found }
	if get("format") != int64(1) {
		damaged("its record has format %v", get("format"))
	}
	streams := texts(get("streams"))
	positions := func(plain any) any {
		return listed(plain, func(each any) any {
			f := fields(each, 5)
			return []any{streams[as[int64](f[0])], f[1], f[2], f[3], f[4]}
		})
	}
	line := object{"kind": "group", "key": key, "streams": streams, "starts": cuts(get("starts"))}
	for _, name := range []string{"retention", "lease", "interval", "max_outstanding", "runs"} {
		line[name] = get(name)
	}
	for _, name := range []string{"unassigned", "completed", "future", "ends"} {
		line[name] = positions(get(name))
	}
	for _, name := range []string{"checkpoints", "silent"} {
		line[name] = listed(get(name), func(each any) any { f := fields(each, 2); return []any{f[0], cuts(f[1])} })
	}
	line["readers"] = listed(get("readers"), func(each any) any {
		f := fields(each, 4)
		return []any{f[0], f[1], f[2], positions(f[3])}
	})
	line["outstanding"] = listed(get("outstanding"), func(each any) any {
		f := fields(each, 4)
		return []any{f[0], f[1], f[2], positions(f[3])}
	})
	line["set_back"] = listed(get("set_back"), func(each any) any {
		f := fields(each, 3)
		return []any{streams[as[int64](f[0])], f[1], cutOf(f[2])}
	})
	return line
}

func timesLine(key string, value []byte) any {
	f := format(value)
	if strings.HasSuffix(key, "/watermarks") {
		marks := listed(f[0], func(each any) any { w := fields(each, 3); return []any{w[0], w[1], cutOf(w[2])} })
		return object{"kind": "watermarks", "key": key, "watermarks": marks}
	}
	writers := object{}
	for _, each := range as[dict](f[1]) {
		writers[as[string](each.key)] = fields(each.value, 3)
	}
	return object{"kind": "times", "key": key, "highest": f[0], "writers": writers}
}
