// Package doctorplane wires the doctor: it measures this process, answers what operators and other members ask about
// it, and asks these in turn.
package doctorplane

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/api/corbelapi"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/examiner"
	"corbel.dev/corbel/doctor/probe"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// MethodClock is the RPC that tells a process's wall clock.
const MethodClock = "doctor.clock"

const (
	// clockEvery is how often clocks are compared, clockTime how long a comparison may take to say anything.
	clockEvery = 10 * time.Second
	clockTime  = 200 * time.Millisecond
)

// Access turns tokens into rights.
type Access interface {
	Grant(ctx context.Context, token string) (*acl.Grant, error)
}

// Doctor is the doctor's part in a process: its examiner, what it knows of others, its clock among others. It is the
// handler of the HTTP ports: what is not about diagnostics, or mounted by a plane, is the API's.
type Doctor struct {
	d        *plane.Doors
	access   Access
	api      http.Handler // the process's own
	profiles *http.ServeMux
	examiner *examiner.Examiner
	reports  *corbelapi.Doctor
	role     role
}

// role is what differs between servers and agents.
type role interface {
	// evidence is what others told.
	evidence() []doctor.Evidence
	run(ctx context.Context)
}

// New makes it, when all planes are open. It starts nothing.
func New(d *plane.Doors, a Access, api http.Handler) (*Doctor, error) {
	x := &Doctor{d: d, access: a, api: api}
	x.profiles = x.serveProfiles()
	cfg := probe.Config{Member: d.Cfg.Node.Name, Role: doctor.RoleAgent, Version: version.Number, Metrics: d.Metrics,
		Dir: d.Cfg.DataDir, FS: d.FS, Clock: d.Clock, Log: d.Log, Others: d.Registries(), Fresh: d.Refresh,
		Addresses: x.addresses, Depends: d.Dependencies, Host: &probe.Host{Dir: d.Cfg.DataDir, Ports: x.ports, Peer: x.peer,
			Services: x.services, Cards: d.Faults.Cards}}
	if d.Cfg.Server {
		h := &hearing{d: d, access: a, told: map[string]doctor.Evidence{}}
		d.Handle(wire.Members, MethodTell, h.listen)
		cfg.Role, x.role = doctor.RoleServer, h
	} else {
		t := &telling{d: d, outbox: make(chan doctor.Evidence, 1)}
		cfg.Tell, x.role = t.tell, t
	}
	var err error
	if x.examiner, err = examiner.New(cfg); err != nil {
		return nil, err
	}
	x.reports = corbelapi.NewDoctor(corbelapi.Config{Evidence: x.evidence, Others: x.others, Ask: x.ask,
		Allow:   func(r *http.Request) bool { return d.Allows(r, plane.Right{Resource: acl.Operator, Level: acl.Read}) },
		Profile: x.examiner.Profile})
	d.Handle(wire.Members, MethodClock, func(context.Context, []byte) ([]byte, error) {
		return pack.Uint(nil, uint64(d.Clock.Now().UnixNano())), nil
	})
	d.Handle(wire.Servers, MethodAsk, x.serveAsked)
	d.HandleStream(wire.Servers, MethodAskStream, x.serveAskedStream)
	return x, nil
}

// Run gathers, compares clocks and, on agents, tells a server, until ctx ends.
func (d *Doctor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.clocks(ctx) })
	wg.Go(func() { d.role.run(ctx) })
	return d.examiner.Run(ctx)
}

// addresses are those at which others know this process.
func (d *Doctor) addresses() []string {
	cfg := d.d.Cfg
	out := []string{d.d.RPCAddr()}
	for _, addrs := range [][]string{cfg.Listen.HTTP, cfg.Listen.HTTPS} {
		for _, addr := range addrs {
			out = append(out, addr)
			if host, port, err := net.SplitHostPort(addr); err == nil {
				if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
					out = append(out, net.JoinHostPort(cfg.Advertise.Addr, port), net.JoinHostPort("127.0.0.1", port))
				}
			}
		}
	}
	return out
}

// ports are those whose connections are this process's: its own RPC port, and those of other members.
func (d *Doctor) ports() []int {
	seen := map[int]bool{d.d.RPCPort(): true}
	out := []int{d.d.RPCPort()}
	for _, m := range d.d.Pool.Members(member.ActAskServer) {
		if port, err := strconv.Atoi(m.Tags["port"]); err == nil && !seen[port] {
			seen[port] = true
			out = append(out, port)
		}
	}
	return out
}

// peer names the member at an address: by address and port where it is dialed, by address alone where it is the only
// one there.
func (d *Doctor) peer(ip string, port int) string {
	name := ""
	for _, m := range d.d.Pool.Members(member.ActShow) {
		if m.Addr != ip {
			continue
		}
		if m.Tags["port"] == strconv.Itoa(port) {
			return m.Name
		}
		if name != "" {
			return "" // several live there
		}
		name = m.Name
	}
	return name
}

// evidence is this process's own, then what agents told it.
func (d *Doctor) evidence() []doctor.Evidence {
	return append([]doctor.Evidence{d.examiner.Evidence()}, d.role.evidence()...)
}

// others are the servers besides this process: those that gossip believes dead, and those that have a vote though
// gossip has forgotten them, are named as silent.
func (d *Doctor) others() []corbelapi.Member {
	var out []corbelapi.Member
	votes := d.votes()
	for _, m := range d.d.Pool.Members(member.ActAskServer) {
		_, voter := votes[m.Tags["id"]]
		delete(votes, m.Tags["id"])
		if m.Name != d.d.Cfg.Node.Name && (voter || m.Status != member.Left) {
			out = append(out, corbelapi.Member{Name: m.Name, Role: doctor.RoleServer})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(votes)) {
		if id != d.d.ID {
			out = append(out, corbelapi.Member{Name: "server " + id + " at " + votes[id], Role: doctor.RoleServer})
		}
	}
	return out
}

// votes are the addresses of the voters of the Raft groups that this process is in, by id.
func (d *Doctor) votes() map[string]string {
	out := map[string]string{}
	for _, one := range d.d.AllGroups() {
		g := one.Raft.Load()
		if g == nil {
			continue
		}
		servers, _, err := g.Configuration()
		if err != nil {
			continue
		}
		for _, s := range servers {
			if s.Voter {
				out[s.ID] = s.Address
			}
		}
	}
	return out
}

// ask fetches a server's evidence with the rights of r.
func (d *Doctor) ask(ctx context.Context, name string, r *http.Request) ([]doctor.Evidence, error) {
	there := r.Clone(ctx)
	there.URL.Path, there.URL.RawPath, there.URL.RawQuery = ReachPrefix+name+"/v1/doctor/evidence", "", ""
	there.Header.Del("Accept-Encoding")
	w := &httpx.Recorder{Head: http.Header{}, Most: maxAnswerBytes}
	if err := httpx.Whole(func() { d.reach(w, there) }); err != nil {
		return nil, err
	}
	if w.Status != http.StatusOK {
		return nil, errkind.Errorf(errkind.Unavailable, "%s", bytes.TrimSpace(w.Body))
	}
	var out []doctor.Evidence
	return out, json.Unmarshal(w.Body, &out)
}

// maxAnswerBytes bounds what one member may answer: its own evidence and that of maxTold agents.
const maxAnswerBytes = 64 << 20

// clocks compares this process's wall clock with those of servers.
func (d *Doctor) clocks(ctx context.Context) {
	for {
		timer := time.NewTimer(clockEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for i, m := range d.d.Pool.Members(member.ActAskServer) {
			if m.Status != member.Alive || m.Name == d.d.Cfg.Node.Name || (!d.d.Cfg.Server && i > 2) {
				continue
			}
			d.compare(ctx, m)
		}
	}
}

// compare asks one server for the time. An answer that took long says nothing.
func (d *Doctor) compare(ctx context.Context, m member.Member) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	sent := d.d.Clock.Now()
	b, err := d.d.RPC.Call(ctx, base.MemberRPC(m), MethodClock, nil)
	took := time.Since(began)
	if err != nil || took > clockTime {
		return
	}
	theirs := time.Unix(0, int64(pack.Read(b).Uint()))
	offset := theirs.Sub(sent.Round(0)) - took/2
	d.d.Metrics.Gauge("peer.clock_offset_ms", "peer", m.Name).Set(float64(offset) / float64(time.Millisecond))
}
