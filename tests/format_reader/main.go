// Prints all that a root of format 1 has: streams, live events, attributes and key-value tables, one JSON document a
// line; with -records its other records. It shares no code with the project. docs/format.md and docs/format-reading.md are to say all that it does.
//
//	go run . [-records] ROOT
//
// With PRAVEGA_SIGNING_KEY, the root has to be signed with that key.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"
)

type damage struct{ text string }

func (d damage) Error() string { return d.text }

// damaged ends the program: what a reader cannot understand it must not guess.
func damaged(text string, values ...any) { panic(damage{fmt.Sprintf(text, values...)}) }

// attempt returns the damage that work meets, if any.
func attempt(work func()) (problem error) {
	defer func() {
		if met := recover(); met != nil {
			found, ok := met.(damage)
			if !ok {
				found = damage{fmt.Sprintf("it makes no sense: %v", met)}
			}
			problem = found
		}
	}()
	work()
	return nil
}

// within names the object that work reads in the damage that it meets.
func within(path string, work func()) {
	if problem := attempt(work); problem != nil {
		damaged("%s: %v", path, problem)
	}
}

func decimal(number int64) string { return strconv.FormatInt(number, 10) }
func digits(number int64) string  { return fmt.Sprintf("%020d", number) }
func hex16(number int64) string   { return fmt.Sprintf("%016x", uint64(number)) }
func unhex(text string) string {
	found, err := hex.DecodeString(text)
	if err != nil {
		damaged("%v", err)
	}
	return string(found)
}

func parseDigits(text string) (int64, bool) {
	if len(text) != 20 {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && number >= 0
}

type description struct {
	Id         string   `json:"id"`
	Format     int      `json:"format"`
	Containers int      `json:"containers"`
	Wal        *string  `json:"wal"`
	Recovered  [][2]any `json:"recovered"`
	LogOf      *string  `json:"log_of"`
	Signed     *string  `json:"signed"`
}

func open(root string) []*container {
	var found description
	path := filepath.Join(root, "_system", "pravega.json")
	data := readFile(path)
	if err := json.Unmarshal(data, &found); err != nil {
		damaged("%s: %v", path, err)
	}
	if found.Format != 1 || found.LogOf != nil {
		damaged("%s: it is no root of format 1", path)
	}
	key := signingKey()
	checkDescription(path, data, key)
	log := root
	if found.Wal != nil {
		if !strings.HasPrefix(*found.Wal, "file://") {
			damaged("%s: its log is in %s, which is no folder", path, *found.Wal)
		}
		log = strings.TrimPrefix(*found.Wal, "file://")
	}
	var containers []*container
	for number := 0; number < found.Containers; number++ {
		generation := found.Id
		for _, each := range found.Recovered {
			if each[0].(float64) == float64(number) {
				generation = each[1].(string)
			}
		}
		containers = append(containers, &container{
			number: uint32(number), generation: []byte(unhex(generation)), chunks: root, log: log,
			signed: found.Signed != nil, key: key,
		})
	}
	return containers
}

func main() {
	records := flag.Bool("records", false, "print the other records: scopes, transactions, reader groups, cuts, times")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: format_reader [-records] ROOT")
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	problem := attempt(func() {
		containers := open(flag.Arg(0))
		for _, each := range containers {
			each.replay()
		}
		if lines := newPrinter(out); *records {
			lines.records(containers)
		} else {
			lines.all(containers)
		}
	})
	out.Flush()
	if problem != nil {
		fmt.Fprintf(os.Stderr, "%v\n", problem)
		os.Exit(1)
	}
}

var escapes = map[uint16]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

// quoted is a string in JSON that has ASCII only.
func quoted(text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		switch short, ok := escapes[unit]; {
		case ok:
			out = append(out, short...)
		case unit >= 0x20 && unit < 0x7f:
			out = append(out, byte(unit))
		default:
			out = append(out, fmt.Sprintf("\\u%04x", unit)...)
		}
	}
	return `"` + string(out) + `"`
}
