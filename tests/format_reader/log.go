package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

const (
	frameHeader      = 120
	checkpointHeader = 61
	frameVersion     = 1
	kindData         = 0
	kindBell         = 1
	kindRepair       = 2
)

// position names a live frame: it is what the next frame names as its predecessor.
type position struct {
	address int64
	writer  string
	epoch   int64
	seal    uint32
}

type frame struct {
	position
	kind         byte
	predecessor  position
	meta         []byte
	payloadStart int64
}

// follows: W1, the frame is live behind the live frame head.
func (f frame) follows(head position) bool {
	step := int64(1)
	if f.writer == head.writer {
		step = 0
	}
	p := f.predecessor
	return f.kind != kindBell && p.address == head.address && p.writer == head.writer && p.seal == head.seal &&
		f.epoch == head.epoch+step
}

// container is one container of a root: where its objects are, and its state once the log was replayed.
type container struct {
	number     uint32
	generation []byte
	chunks     string // folder of the root
	log        string // folder of the log's root
	signed     bool
	key        []byte // of the signatures; nil: they are not checked
	state      *state
}

func (c *container) folder(kind string) string {
	return filepath.Join(c.log, "_system", "containers", decimal(int64(c.number)), kind, hex.EncodeToString(c.generation))
}

func (c *container) framePath(address int64) string {
	return filepath.Join(c.folder("wal"), digits(address))
}

func readFile(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		damaged("%v", err)
	}
	return data
}

// replay opens the container: its newest checkpoint, and all live frames behind it.
func (c *container) replay() {
	head := c.openCheckpoint()
	live := c.follow(head)
	skipped := map[int64]map[int64]bool{}
	for _, each := range live {
		if each.kind == kindRepair {
			repair := fields(unpack(each.meta), 3)
			if repair[2] != nil {
				places := map[int64]bool{}
				for _, place := range as[[]any](repair[2]) {
					places[as[int64](place)] = true
				}
				skipped[as[int64](repair[0])] = places
			}
		}
	}
	for _, each := range live {
		within(c.framePath(each.address), func() { c.state.apply(each, skipped[each.address]) })
	}
}

func (c *container) openCheckpoint() position {
	names := numbered(c.folder("checkpoints"))
	c.state = newState()
	if len(names) == 0 {
		return position{address: -1, writer: string(make([]byte, 16))}
	}
	path := filepath.Join(c.folder("checkpoints"), digits(names[len(names)-1]))
	var head position
	within(path, func() { head = c.parseCheckpoint(c.readLog(path), names[len(names)-1]) })
	return head
}

func (c *container) parseCheckpoint(data []byte, address int64) position {
	if len(data) < checkpointHeader || string(data[24:28]) != "PSCP" {
		damaged("it is no checkpoint")
	}
	sum := crc32.Update(crc(data[:57]), castagnoli, data[checkpointHeader:])
	if binary.BigEndian.Uint32(data[57:]) != sum {
		damaged("its checksum does not match")
	}
	if data[28] != 1 {
		damaged("it has version %d", data[28])
	}
	if binary.BigEndian.Uint32(data[29:]) != c.number || !bytes.Equal(data[33:49], c.generation) ||
		int64(binary.BigEndian.Uint64(data[49:])) != address {
		damaged("it is of another container, generation or address")
	}
	parts := fields(unpack(data[checkpointHeader:]), 3)
	head := fields(parts[0], 4)
	plain := parts[1]
	if plain == nil {
		var content []byte
		for _, part := range as[[]any](parts[2]) {
			each := fields(part, 3)
			piece := c.readLog(filepath.Join(c.log, as[string](each[0])))
			if int64(len(piece)) != as[int64](each[1]) || int64(crc(piece)) != as[int64](each[2]) {
				damaged("its part %s is damaged", each[0])
			}
			content = append(content, piece...)
		}
		plain = unpack(content)
	}
	c.state.open(plain)
	return position{as[int64](head[0]), string(as[[]byte](head[1])), as[int64](head[2]), uint32(as[int64](head[3]))}
}

// follow returns the live frames behind head. The log ends at the first address without an object.
func (c *container) follow(head position) []frame {
	var live []frame
	for address := head.address + 1; ; address++ {
		path := c.framePath(address)
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return live
		}
		var found frame
		problem := attempt(func() { found = c.parseFrame(c.readLog(path), address) })
		if problem != nil {
			address = c.repaired(address, head, path, problem)
			found = c.parseFrame(c.readLog(c.framePath(address)), address)
		}
		if found.follows(head) {
			live = append(live, found)
			head = found.position
		}
	}
}

// repaired is the address of the repair frame that passes over a damaged frame; without one, the damage stands.
func (c *container) repaired(damage int64, head position, path string, problem error) int64 {
	for address := damage + 1; ; address++ {
		if _, err := os.Stat(c.framePath(address)); err != nil {
			damaged("%s: %v", path, problem)
		}
		var found frame
		if attempt(func() { found = c.parseFrame(c.readLog(c.framePath(address)), address) }) != nil || found.kind != kindRepair {
			continue
		}
		repair := fields(unpack(found.meta), 3)
		if found.follows(head) && repair[0] == damage && repair[2] == nil {
			return address
		}
	}
}

func (c *container) parseFrame(data []byte, address int64) frame {
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(data[at:])) }
	small := func(at int) uint32 { return binary.BigEndian.Uint32(data[at:]) }
	if len(data) < frameHeader || small(frameHeader-4) != crc(data[:frameHeader-4]) {
		damaged("the header's checksum does not match")
	}
	if string(data[24:28]) != "PSWL" || data[28] != frameVersion {
		damaged("it is no frame, or one of version %d", data[28])
	}
	if small(32) != c.number || !bytes.Equal(data[36:52], c.generation) || number(52) != address {
		damaged("it is of another container, generation or address")
	}
	found := frame{
		position:    position{address, string(data[:16]), number(60), small(frameHeader - 4)},
		kind:        data[29],
		predecessor: position{address: number(84), writer: string(data[68:84]), seal: small(112)},
	}
	metaLength, metaCrc, payloadLength, payloadCrc := int(small(92)), small(96), number(100), small(108)
	if found.kind > kindRepair {
		damaged("it has kind %d, which this format does not have", found.kind)
	}
	if int64(len(data)) != int64(frameHeader+metaLength)+payloadLength {
		damaged("it has %d bytes", len(data))
	}
	found.meta = data[frameHeader : frameHeader+metaLength]
	found.payloadStart = int64(frameHeader + metaLength)
	if crc(found.meta) != metaCrc || crc(data[found.payloadStart:]) != payloadCrc {
		damaged("the checksum of its metadata or payload does not match")
	}
	return found
}

// numbered lists the names of 20 digits in a folder, as numbers in order.
func numbered(folder string) []int64 {
	entries, err := os.ReadDir(folder)
	if err != nil && !os.IsNotExist(err) {
		damaged("%v", err)
	}
	var found []int64
	for _, each := range entries {
		if number, ok := parseDigits(each.Name()); ok {
			found = append(found, number)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found
}
