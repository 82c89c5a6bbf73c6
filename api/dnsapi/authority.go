package dnsapi

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// nameServerLimit is how many NS records we give: what fits 512 bytes with glue.
const nameServerLimit = 3

// soa is the zone's start of authority; its serial is the time.
func soa(c *settled, z *zone, now time.Time) *dns.SOA {
	return &dns.SOA{
		Hdr: header(z.name, dns.TypeSOA, c.SOA.MinTTL), Ns: "ns." + z.name, Mbox: "hostmaster." + z.name,
		Serial: uint32(now.Unix()), Refresh: c.SOA.Refresh, Retry: c.SOA.Retry, Expire: c.SOA.Expire, Minttl: c.SOA.MinTTL,
	}
}

// authority answers SOA and NS for any name of the zone: the servers that are healthy.
func (l *lookup) authority() result {
	var ns, glue []dns.RR
	ttl := uint32(l.c.NodeTTL / time.Second)
	for inst := range l.state.Instances(catalog.ServerServiceName) {
		n := l.state.Node(inst.Node)
		if n == nil || !l.allowedNode(n.Name) || l.health(inst) == catalog.Critical {
			continue
		}
		name := n.Name + ".node." + l.dc + "." + l.zone.name
		if !isName(name) {
			continue
		}
		ns = append(ns, &dns.NS{Hdr: header(l.zone.name, dns.TypeNS, ttl), Ns: name})
		if a, err := netip.ParseAddr(n.Address); err == nil {
			glue = append(glue, addressRR(name, a, ttl))
		}
		if len(ns) == nameServerLimit {
			break
		}
	}
	if l.qtype == dns.TypeNS {
		r := result{extra: glue, soa: len(ns) == 0}
		for _, rr := range ns {
			r.groups = append(r.groups, group{rr: rr})
		}
		return r
	}
	return result{groups: []group{{rr: soa(l.c, l.zone, time.Now())}}, ns: ns, extra: glue}
}

// reverseIndex finds names by address. It is made when asked for, from one State, and
// made again when the State is another and the index is older than a second: a reverse
// look-up may be that late, and a storm of them costs one pass over the catalog a second.
type reverseIndex struct {
	mu    sync.Mutex // guards all below; held while the index is made, so that one does it
	index uint64
	made  time.Time
	names map[netip.Addr][]reverseName
}

// reverseName is a node or a service that has an address.
type reverseName struct {
	name    string
	service bool
}

const reverseAge = time.Second

func (r *reverseIndex) find(state *statestore.State, a netip.Addr) []reverseName {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.names == nil || (r.index != state.Index() && now.Sub(r.made) >= reverseAge) {
		r.names, r.index, r.made = reverseNames(state), state.Index(), now
	}
	return r.names[a]
}

// reverseNames lists the nodes by address and, for addresses no node has, the services.
func reverseNames(state *statestore.State) map[netip.Addr][]reverseName {
	names := make(map[netip.Addr][]reverseName)
	for n := range state.Nodes() {
		if a, err := netip.ParseAddr(n.Address); err == nil {
			names[a.Unmap()] = append(names[a.Unmap()], reverseName{name: n.Name})
		}
	}
	services := make(map[netip.Addr][]reverseName)
	for summary := range state.ServiceNames() {
		for inst := range state.Instances(summary.Name) {
			a, err := netip.ParseAddr(inst.Address)
			if err != nil || names[a.Unmap()] != nil {
				continue
			}
			if name := (reverseName{inst.Name, true}); !slices.Contains(services[a.Unmap()], name) {
				services[a.Unmap()] = append(services[a.Unmap()], name)
			}
		}
	}
	maps.Copy(names, services)
	return names
}

// pointer answers a PTR question; found is false when the address is nobody's here, or
// nobody's whom the token may see.
func (l *lookup) pointer(a netip.Addr) (r result, found bool) {
	for _, n := range l.s.reverse.find(l.state, a.Unmap()) {
		word, allowed := ".node.", l.allowedNode(n.name)
		if n.service {
			word, allowed = ".service.", l.allowedService(n.name)
		}
		if target := n.name + word + l.dc + "." + l.zone.name; allowed && isName(target) {
			r.groups = append(r.groups, group{rr: &dns.PTR{Hdr: header(l.owner, dns.TypePTR, 0), Ptr: target}})
		}
	}
	return r, len(r.groups) > 0
}
