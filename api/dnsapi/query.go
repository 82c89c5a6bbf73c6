package dnsapi

import (
	"context"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// Queries runs prepared queries.
type Queries interface {
	// ExecuteDNS runs a query. The error is of kind NotFound when there is no such query, Denied when the
	// token may not run it.
	ExecuteDNS(ctx context.Context, q Query) (QueryAnswer, error)
}

// Query is what DNS asks for.
type Query struct {
	Name  string // in lower case
	Token string // in whose name
	Agent string // the node whose client asks; "" when unknown
	// Source is the client's network as its resolver told it, else the client; invalid when unknown.
	Source netip.Addr
}

// QueryAnswer is the outcome of a prepared query.
type QueryAnswer struct {
	Datacenter string // where the instances are
	// Instances are those to be given, in this order.
	Instances []QueryInstance
	// TTL is the query's own; negative when it has none and the service's holds.
	TTL time.Duration
}

// QueryInstance is one instance with its node and its health.
type QueryInstance struct {
	Node    *catalog.Node
	Service *catalog.Service
	Status  catalog.Health
}

// queryTimeout bounds the run of a prepared query, its way to other datacenters included.
const queryTimeout = 5 * time.Second

// runQuery answers from a prepared query. d.todo becomes chase when the answer leads elsewhere.
func (s *Server) runQuery(ctx context.Context, c *settled, d *deferred) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q := d.req.Question[0]
	source := clientSubnet(d.req)
	if !source.IsValid() {
		source = d.from.source
	}
	got, err := s.cfg.Queries.ExecuteDNS(ctx, Query{d.place.name, d.from.token, d.from.agent, source})
	if err != nil && !errkind.Is(err, errkind.NotFound) && !errkind.Is(err, errkind.Denied) {
		s.cfg.Logger.Warn("a prepared query failed", "query", d.place.name, "error", err)
		d.reply.Rcode = dns.RcodeServerFailure
		setOPT(d.reply, d.req)
		return
	}
	r := nothing(dns.RcodeNameError)
	if err == nil && len(got.Instances) > 0 {
		r = result{}
		l := lookup{s: s, c: c, dc: got.Datacenter, zone: d.zone, owner: q.Name, qtype: q.Qtype}
		seen := make(map[netip.Addr]bool)
		for _, i := range got.Instances {
			ttl := uint32(max(got.TTL, 0) / time.Second)
			if got.TTL < 0 {
				ttl = c.serviceTTL(i.Service.Name)
			}
			l.instance(&r, i.Service, i.Node, i.Status, ttl, seen)
		}
		r.soa = len(r.groups) == 0
	}
	limit := limitsFor(c, q.Qtype, d.from.tcp, ednsSize(d.req), len(r.groups))
	order := make([]uint32, len(r.groups))
	for i := range order {
		order[i] = uint32(i)
	}
	s.assemble(d.reply, d.req, c, d.zone, &r, limit, order, d.from.tcp)
	narrow(d.reply)
	if r.chase != "" {
		d.todo = chase
	}
}

// clientSubnet is the network that the question is asked for (EDNS client subnet).
func clientSubnet(req *dns.Msg) netip.Addr {
	if opt := req.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if subnet, ok := o.(*dns.EDNS0_SUBNET); ok {
				if a, ok := netip.AddrFromSlice(subnet.Address); ok {
					return a.Unmap()
				}
			}
		}
	}
	return netip.Addr{}
}

// narrow says that an answer holds for the client's network alone: another one may get another.
func narrow(m *dns.Msg) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if subnet, ok := o.(*dns.EDNS0_SUBNET); ok {
				subnet.SourceScope = subnet.SourceNetmask
			}
		}
	}
}
