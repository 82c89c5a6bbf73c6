package dnsapi

import (
	"cmp"
	"encoding/hex"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
)

// group is one answer and the Additional records that belong to it: they are cut together.
type group struct {
	rr    dns.RR
	extra []dns.RR
}

// result is the answer to one question before it is ordered and cut to size.
type result struct {
	rcode  int
	groups []group
	// extra and ns are kept whatever is cut.
	extra, ns []dns.RR
	soa       bool // the zone's SOA belongs in Authority
	// chase is a name outside that an answer leads to, to be resolved by the recursors.
	chase string
	// indexOf tells whether the result still holds: it does while indexOf(state) is index.
	// nil means that the result must not be kept.
	indexOf func(*statestore.State) uint64
	index   uint64
}

// lookup is one question against one State.
type lookup struct {
	s      *Server
	c      *settled
	dc     string // where the instances are
	state  *statestore.State
	access Access
	zone   *zone
	owner  string // the name as it was asked
	qtype  uint16
}

func (l *lookup) allowedNode(name string) bool { return l.access.Node == nil || l.access.Node(name) }
func (l *lookup) allowedService(name string) bool {
	return l.access.Service == nil || l.access.Service(name)
}

// nothing is an answer without records: the name is there (or not), the type is not.
func nothing(rcode int) result { return result{rcode: rcode, soa: true} }

// zoneAnswer answers a question about a place within a zone.
func (l *lookup) zoneAnswer(p place) result {
	switch l.qtype {
	case dns.TypeSOA, dns.TypeNS:
		return l.authority()
	case dns.TypeAXFR, dns.TypeIXFR:
		return result{rcode: dns.RcodeNotImplemented}
	}
	if p.kind == kindVirtual && (p.peer != "" || l.s.foreign(p)) {
		return l.virtualOfPeer(cmp.Or(p.peer, p.dc), p.name)
	}
	if l.s.foreign(p) || p.bare && l.qtype != dns.TypeSRV {
		return nothing(dns.RcodeNameError)
	}
	switch p.kind {
	case kindApex:
		return nothing(dns.RcodeSuccess)
	case kindNode:
		if p.peer != "" {
			return l.node(l.s.peerNodes.Find(l.state, p.peer, p.name), peering.NodesIndex)
		}
		return l.node(l.state.Node(p.name), func(s *statestore.State) uint64 { return s.NodeIndex(p.name) })
	case kindService:
		if p.peer != "" {
			return l.imported(p)
		}
		return l.service(p, l.state.Instances(p.name), func(s *statestore.State) uint64 { return s.ServiceIndex(p.name) })
	case kindConnect:
		return l.service(p, l.state.ConnectInstances(p.name),
			func(s *statestore.State) uint64 { return s.ConnectIndex(p.name) })
	case kindIngress:
		if !l.allowedService(p.name) {
			return nothing(dns.RcodeNameError)
		}
		return l.service(p, gateway.Ingress(l.state, p.name),
			func(s *statestore.State) uint64 { return gateway.IngressIndex(s, p.name) })
	case kindVirtual:
		return l.virtual(p.name)
	case kindAddr:
		return l.addr(p.addr)
	}
	return nothing(dns.RcodeNameError)
}

// imported answers for a service of a peer, which is a State of its own.
func (l *lookup) imported(p place) result {
	of := *l
	of.state = peering.Imported(l.state, p.peer, p.name)
	indexOf := func(s *statestore.State) uint64 { return peering.Index(s, p.peer, p.name) }
	r := of.service(p, of.state.Instances(p.name), indexOf)
	if r.indexOf != nil {
		r.index = indexOf(l.state)
	}
	return r
}

// node answers with the address of a node and its meta; nil is a node that is not there.
func (l *lookup) node(n *catalog.Node, indexOf func(*statestore.State) uint64) result {
	if n == nil || !l.allowedNode(n.Name) {
		return nothing(dns.RcodeNameError)
	}
	r := result{indexOf: indexOf, index: indexOf(l.state)}
	ttl := uint32(l.c.NodeTTL / time.Second)
	if rr := l.address(l.owner, n.Address, ttl, &r); rr != nil {
		r.groups = append(r.groups, group{rr: rr})
	}
	meta := metaTXT(l.owner, n, ttl)
	if l.qtype == dns.TypeTXT || l.qtype == dns.TypeANY {
		for _, rr := range meta {
			r.groups = append(r.groups, group{rr: rr})
		}
	} else if !l.c.OmitNodeMeta && len(r.groups) > 0 {
		r.groups[0].extra = meta
	}
	r.soa = len(r.groups) == 0
	return r
}

// address is the record of an address for the type that was asked: A, AAAA, or CNAME
// when the address is a name; nil when that type has nothing to say.
func (l *lookup) address(owner, address string, ttl uint32, r *result) dns.RR {
	a, err := netip.ParseAddr(address)
	if err != nil {
		if address == "" || !isName(address) {
			return nil
		}
		switch l.qtype {
		case dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeCNAME, dns.TypeSRV:
			r.chase = dns.Fqdn(address)
			return &dns.CNAME{Hdr: header(owner, dns.TypeCNAME, ttl), Target: r.chase}
		}
		return nil
	}
	rr := addressRR(owner, a, ttl)
	t := rr.Header().Rrtype
	if l.qtype != t && l.qtype != dns.TypeANY && l.qtype != dns.TypeSRV {
		return nil
	}
	return rr
}

func isName(s string) bool {
	_, ok := dns.IsDomainName(s)
	return ok
}

func addressRR(owner string, a netip.Addr, ttl uint32) dns.RR {
	if a = a.Unmap(); a.Is4() {
		return &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: a.AsSlice()}
}

func header(owner string, t uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
}

func (l *lookup) addr(a netip.Addr) result {
	r := result{}
	ttl := uint32(l.c.NodeTTL / time.Second)
	if rr := addressRR(l.owner, a, ttl); l.qtype == rr.Header().Rrtype || l.qtype == dns.TypeANY {
		r.groups = []group{{rr: rr}}
	} else {
		r.soa = true
	}
	return r
}

// tagVirtual is the tagged address that holds a service's virtual address.
const tagVirtual = "consul-virtual"

// virtual answers with the address that the mesh gave a service.
func (l *lookup) virtual(name string) result {
	if !l.allowedService(name) {
		return nothing(dns.RcodeNameError)
	}
	indexOf := func(s *statestore.State) uint64 {
		return max(s.ServiceIndex(name), s.ConnectIndex(name),
			catalog.ManualIPsIndex(s, catalog.ManualIPsKey("", name)))
	}
	reply := func(a netip.Addr) result { return l.meant(a, name, indexOf) }
	for _, instances := range []iter.Seq[*catalog.Service]{l.state.Instances(name), l.state.ConnectInstances(name)} {
		for inst := range instances {
			a, err := netip.ParseAddr(inst.TaggedAddresses[tagVirtual].Address)
			if err != nil {
				continue
			}
			return reply(a)
		}
	}
	if a, ok := l.manualIP("", name); ok {
		return reply(a)
	}
	return nothing(dns.RcodeNameError)
}

// manualIP is the first address that a service was given.
func (l *lookup) manualIP(peer, name string) (netip.Addr, bool) {
	for _, ip := range catalog.ManualIPsOf(l.state, peer, name).IPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// virtualOfPeer answers with the address by which callers here mean a peer's service.
func (l *lookup) virtualOfPeer(peer, name string) result {
	a, ok := l.manualIP(peer, name)
	if !ok || !l.allowedService(name) {
		return nothing(dns.RcodeNameError)
	}
	indexOf := func(s *statestore.State) uint64 {
		return catalog.ManualIPsIndex(s, catalog.ManualIPsKey(peer, name))
	}
	return l.meant(a, name, indexOf)
}

// meant is the answer that an address by which callers mean a service is.
func (l *lookup) meant(a netip.Addr, name string, indexOf func(*statestore.State) uint64) result {
	r := result{indexOf: indexOf, index: indexOf(l.state)}
	if rr := addressRR(l.owner, a, l.c.serviceTTL(name)); l.qtype == rr.Header().Rrtype || l.qtype == dns.TypeANY {
		r.groups = []group{{rr: rr}}
	}
	r.soa = len(r.groups) == 0
	return r
}

// service answers with the instances that are healthy enough and carry the tag.
func (l *lookup) service(p place, instances func(func(*catalog.Service) bool),
	indexOf func(*statestore.State) uint64) result {
	exists := false
	r := result{indexOf: indexOf, index: indexOf(l.state)}
	ttl := l.c.serviceTTL(p.name)
	seen := make(map[netip.Addr]bool)
	for inst := range instances {
		n := l.state.Node(inst.Node)
		if n == nil || !l.allowedService(inst.Name) || !l.allowedNode(n.Name) {
			continue
		}
		status := l.health(inst)
		if status == catalog.Critical || (l.c.OnlyPassing && status != catalog.Passing) || !hasTag(inst, p.tag) {
			continue
		}
		if port, ok := inst.PortNamed(p.port); !ok {
			continue
		} else if port != inst.Port {
			other := *inst // what the index holds is everybody's
			other.Port = port
			inst = &other
		}
		exists = true
		l.instance(&r, inst, n, status, ttl, seen)
	}
	if !exists {
		return nothing(dns.RcodeNameError)
	}
	r.soa = len(r.groups) == 0
	return r
}

func (l *lookup) instance(r *result, inst *catalog.Service, n *catalog.Node, status catalog.Health, ttl uint32,
	seen map[netip.Addr]bool) {
	address := inst.Address
	if address == "" {
		address = n.Address
	}
	if l.qtype == dns.TypeSRV {
		l.srv(r, inst, n, address, status, ttl)
		return
	}
	if a, err := netip.ParseAddr(address); err == nil {
		if seen[a] { // two instances on one address are one answer
			return
		}
		seen[a] = true
	}
	rr := l.address(l.owner, address, ttl, r)
	if rr == nil {
		return
	}
	if cname, ok := rr.(*dns.CNAME); ok {
		// A name has one CNAME and nothing beside it.
		if len(r.groups) > 0 {
			r.chase = ""
			if first, ok := r.groups[0].rr.(*dns.CNAME); ok {
				r.chase = first.Target
			}
			return
		}
		r.chase = cname.Target
	} else if len(r.groups) > 0 && r.groups[0].rr.Header().Rrtype == dns.TypeCNAME {
		return
	}
	r.groups = append(r.groups, group{rr: rr})
}

// srv appends the SRV record of an instance, and what its target resolves to.
func (l *lookup) srv(r *result, inst *catalog.Service, n *catalog.Node, address string, status catalog.Health,
	ttl uint32) {
	suffix := "." + l.dc + "." + l.zone.name
	target := n.Name + ".node" + suffix
	if n.Peer != "" {
		target = n.Name + ".node." + n.Peer + ".peer." + l.zone.name
	}
	a, err := netip.ParseAddr(address)
	switch {
	case err != nil && isName(address) && address != n.Address:
		target = dns.Fqdn(address)
	case err == nil && (address != n.Address || n.Peer != "" && l.dc != l.s.cfg.Datacenter): // another datacenter's peer
		target = hex.EncodeToString(a.Unmap().AsSlice()) + ".addr" + suffix
	}
	if !isName(target) {
		return
	}
	g := group{rr: &dns.SRV{
		Hdr: header(l.owner, dns.TypeSRV, ttl), Priority: 1, Weight: weight(inst, status),
		Port: uint16(min(max(inst.Port, 0), math.MaxUint16)), Target: target,
	}}
	var ignored result
	if err == nil {
		g.extra = append(g.extra, addressRR(target, a, ttl))
	} else if target != dns.Fqdn(address) {
		if rr := l.address(target, address, ttl, &ignored); rr != nil {
			g.extra = append(g.extra, rr)
		}
	}
	if !l.c.OmitNodeMeta {
		g.extra = append(g.extra, metaTXT(target, n, ttl)...)
	}
	r.groups = append(r.groups, g)
}

func weight(inst *catalog.Service, status catalog.Health) uint16 {
	w := inst.Weights.Passing
	if status == catalog.Warning {
		w = inst.Weights.Warning
	}
	if inst.Weights == (catalog.Weights{}) {
		w = 1
	}
	return uint16(min(max(w, 0), math.MaxUint16))
}

// health is the worst of the checks of the instance and of its node.
func (l *lookup) health(inst *catalog.Service) catalog.Health {
	worst := catalog.Passing
	for c := range l.state.NodeChecks(inst.Node) {
		worst = max(worst, c.Status)
	}
	for c := range l.state.InstanceChecks(inst.Node, inst.ID) {
		worst = max(worst, c.Status)
	}
	return worst
}

func hasTag(inst *catalog.Service, tag string) bool {
	return tag == "" || slices.ContainsFunc(inst.Tags, func(t string) bool { return strings.EqualFold(t, tag) })
}

// metaTXT is a node's meta as TXT records, sorted by key, in the form of RFC 1464. A key
// that begins with rfc1035- gives its value alone.
func metaTXT(owner string, n *catalog.Node, ttl uint32) (out []dns.RR) {
	keys := make([]string, 0, len(n.Meta))
	for k := range n.Meta {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		text := n.Meta[k]
		if !strings.HasPrefix(strings.ToLower(k), "rfc1035-") {
			text = rfc1464(k) + "=" + text
		}
		out = append(out, &dns.TXT{Hdr: header(owner, dns.TypeTXT, ttl), Txt: chunks(text)})
	}
	return out
}

// rfc1464 quotes what would end the key early, and blanks at its ends, with a backquote.
func rfc1464(key string) string {
	quoted := strings.NewReplacer("`", "``", "=", "`=").Replace(key)
	body := strings.TrimLeft(quoted, " \t")
	out := quoteBlanks(quoted[:len(quoted)-len(body)])
	tail := strings.TrimRight(body, " \t")
	return out + tail + quoteBlanks(body[len(tail):])
}

func quoteBlanks(s string) string {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = append(out, '`', s[i])
	}
	return string(out)
}

// chunks splits a text into the 255 bytes that one string of a TXT record holds, and
// escapes it as miekg/dns reads it.
func chunks(s string) (out []string) {
	for {
		n := min(len(s), 255)
		out = append(out, escapeTXT(s[:n]))
		if s = s[n:]; s == "" {
			return out
		}
	}
}

func escapeTXT(s string) string {
	return strings.NewReplacer(`\`, `\\`).Replace(s)
}
