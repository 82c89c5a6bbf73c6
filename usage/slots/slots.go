// Package slots says which cache host owns a key: keys fall into 16,384 slots as in a Redis cluster, and slots belong
// to hosts by rendezvous, in blocks, so that a host that comes or goes moves its own share of the keys and no other.
//
// What always holds: the same list of hosts, in any order, gives the same owners everywhere; a host that drains owns
// nothing while another one does not. The package decides, and does nothing else.
package slots

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Count is how many slots there are, Block how many stay together: 512 blocks are few enough to be told in one answer,
// and enough to divide fairly.
const (
	Count  = 16384
	Block  = 32
	Blocks = Count / Block
)

// Node is a host of the cache.
type Node struct {
	ID       string // 40 hexadecimal digits, as clients of clusters expect
	Host     string
	Port     int
	Draining bool
}

// Addr is where clients find the host.
func (n Node) Addr() string {
	host := n.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(n.Port)
}

// Map is who owns what.
type Map struct {
	nodes  []Node // by ID
	blocks [Blocks][]uint8
}

// MaxNodes bounds the hosts: a block has the place of its owner in a byte. More are left out, the last by ID.
const MaxNodes = 250

// Assign divides the slots over hosts: each slot has an owner and, where there are enough hosts, replicas-1 others that
// keep a copy. No hosts make an empty map.
func Assign(nodes []Node, replicas int) *Map {
	m := &Map{nodes: slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })}
	m.nodes = m.nodes[:min(len(m.nodes), MaxNodes)]
	var staying []uint8
	for i, n := range m.nodes {
		if !n.Draining {
			staying = append(staying, uint8(i))
		}
	}
	if len(staying) == 0 {
		for i := range m.nodes {
			staying = append(staying, uint8(i))
		}
	}
	weights := make([]uint64, len(m.nodes))
	for b := range m.blocks {
		for _, i := range staying {
			weights[i] = xxhash.Sum64String(m.nodes[i].ID + "/" + strconv.Itoa(b))
		}
		order := slices.Clone(staying)
		slices.SortFunc(order, func(x, y uint8) int { return cmp.Or(cmp.Compare(weights[y], weights[x]), cmp.Compare(x, y)) })
		m.blocks[b] = order[:min(len(order), max(replicas, 1))]
	}
	return m
}

// Nodes are the hosts, by ID.
func (m *Map) Nodes() []Node { return m.nodes }

// Owners are the hosts of a slot, its owner first; none in an empty map.
func (m *Map) Owners(slot int) []Node {
	list := m.blocks[slot/Block]
	out := make([]Node, len(list))
	for i, n := range list {
		out[i] = m.nodes[n]
	}
	return out
}

// Owner is the host of a slot; false in an empty map.
func (m *Map) Owner(slot int) (Node, bool) {
	list := m.blocks[slot/Block]
	if len(list) == 0 {
		return Node{}, false
	}
	return m.nodes[list[0]], true
}

// Range is slots beside each other that have the same owners, the owner first.
type Range struct {
	From, To int // both are in it
	Nodes    []Node
}

// Ranges are all slots.
func (m *Map) Ranges() (list []Range) {
	for b := range m.blocks {
		if b > 0 && slices.Equal(m.blocks[b], m.blocks[b-1]) {
			list[len(list)-1].To += Block
			continue
		}
		list = append(list, Range{From: b * Block, To: b*Block + Block - 1, Nodes: m.Owners(b * Block)})
	}
	return list
}

// Of is the slot of a key: CRC16 of it, or of what stands between its first braces.
func Of(key []byte) int {
	for i, b := range key {
		if b != '{' {
			continue
		}
		for j, e := range key[i+1:] {
			if e == '}' {
				if j > 0 {
					key = key[i+1 : i+1+j]
				}
				break
			}
		}
		break
	}
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ table[byte(crc>>8)^b]
	}
	return int(crc) % Count
}

// table is that of CRC16/XMODEM: polynomial 0x1021.
var table = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()
