package dnsapi

import (
	"encoding/hex"
	"net/netip"
	"strings"
)

// kind is what a name within a zone stands for.
type kind uint8

const (
	kindUnknown kind = iota
	kindApex         // the domain itself
	kindNode         // <node>.node; also with .<peer>.peer
	kindService      // [<tag>.|<port>.port.]<service>.service, _<service>._<tag>.service; also with .<peer>.peer
	kindConnect      // <service>.connect
	kindAddr         // <hex address>.addr
	kindQuery        // <query>.query, _<query>._tcp.query
	kindVirtual      // <service>.virtual; also with .<peer>.peer, or .<peer>
	kindIngress      // <service>.ingress: the gateways through which it is reached
)

// place is where a name leads. Names are in lower case.
type place struct {
	kind kind
	dc   string // "" means the local one
	peer string // of an imported service or its node; "" for one of this cluster
	name string // of the node or service
	tag  string
	port string // one of several, by its name
	addr netip.Addr
	bare bool // _<service>._<tag>.<dc>, without the word service: for SRV alone
}

// kinds are the words before the data center and the domain.
var kinds = map[string]kind{"node": kindNode, "service": kindService, "connect": kindConnect, "addr": kindAddr,
	"query": kindQuery, "virtual": kindVirtual, "ingress": kindIngress}

// locate reads the labels (lower case) that stand before the domain.
func locate(labels []string) place {
	n := len(labels)
	if n == 0 {
		return place{kind: kindApex}
	}
	p := place{}
	switch {
	case n >= 3 && labels[n-1] == "peer" && ofPeers(kinds[labels[n-3]]):
		p.kind, p.peer, labels = kinds[labels[n-3]], labels[n-2], labels[:n-3]
	case n >= 3 && labels[n-1] == "dc" && kinds[labels[n-3]] != kindUnknown:
		p.kind, p.dc, labels = kinds[labels[n-3]], labels[n-2], labels[:n-3]
	case kinds[labels[n-1]] != kindUnknown:
		p.kind, labels = kinds[labels[n-1]], labels[:n-1]
	case n >= 2 && kinds[labels[n-2]] != kindUnknown:
		p.kind, p.dc, labels = kinds[labels[n-2]], labels[n-1], labels[:n-2]
	case n >= 2 && n <= 3 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_"):
		p.kind, p.bare = kindService, true
		if n == 3 {
			p.dc = labels[2]
		}
		labels = labels[:2]
	}
	if len(labels) == 0 {
		return place{}
	}
	switch p.kind {
	case kindNode:
		p.name = strings.Join(labels, ".")
	case kindService:
		p.service(labels)
	case kindQuery:
		if p.service(labels); p.tag != "" { // the names of queries may have dots
			p.name = strings.Join(labels, ".")
		}
	case kindConnect, kindVirtual, kindIngress:
		p.name = labels[len(labels)-1]
	case kindAddr:
		if p.addr = hexAddr(labels[0]); len(labels) != 1 || !p.addr.IsValid() {
			return place{}
		}
	}
	return p
}

// ofPeers tells whether peers have names of a kind.
func ofPeers(k kind) bool { return k == kindService || k == kindNode || k == kindVirtual }

// service reads [<tag>.]<service> or the form of RFC 2782, in which tcp is no tag.
func (p *place) service(labels []string) {
	if len(labels) == 2 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_") {
		p.name, p.tag = labels[0][1:], labels[1][1:]
		if p.tag == "tcp" {
			p.tag = ""
		}
		return
	}
	last := len(labels) - 1
	if last >= 2 && labels[last-1] == "port" {
		p.name, p.port, p.tag = labels[last], labels[last-2], strings.Join(labels[:last-2], ".")
		return
	}
	p.name, p.tag = labels[last], strings.Join(labels[:last], ".")
}

func hexAddr(label string) netip.Addr {
	b, err := hex.DecodeString(label)
	if err != nil {
		return netip.Addr{}
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}
	}
	return a
}

// reverseAddr reads the labels of x.in-addr.arpa and x.ip6.arpa.
func reverseAddr(labels []string) (a netip.Addr, ok bool) {
	n := len(labels)
	switch {
	case n == 6 && labels[4] == "in-addr" && labels[5] == "arpa":
		a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return a, err == nil
	case n == 34 && labels[32] == "ip6" && labels[33] == "arpa":
		var digits [32]byte
		for i := range digits {
			if len(labels[31-i]) != 1 {
				return netip.Addr{}, false
			}
			digits[i] = labels[31-i][0]
		}
		a := hexAddr(string(digits[:]))
		return a, a.IsValid()
	}
	return netip.Addr{}, false
}

// within gives the labels before the domain when the name is in one of the zones.
func within(zones []zone, labels []string) (rest []string, z *zone) {
	for i := range zones {
		z := &zones[i]
		cut := len(labels) - len(z.labels)
		if cut < 0 {
			continue
		}
		match := true
		for j, l := range z.labels {
			match = match && labels[cut+j] == l
		}
		if match {
			return labels[:cut], z
		}
	}
	return nil, nil
}
