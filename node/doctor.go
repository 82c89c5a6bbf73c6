package node

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

// The RPCs of the doctor: a server's wall clock, and the evidence of an agent that found something.
const (
	methodClock = "doctor.clock"
	methodTell  = "doctor.tell"
)

const (
	// maxTold bounds the agents whose evidence a server keeps, toldFor for how long, maxToldBytes how large one is.
	maxTold      = 64
	toldFor      = time.Minute
	maxToldBytes = 1 << 20
	// clockEvery is how often clocks are compared, clockTime how long a comparison may take to say anything.
	clockEvery = 10 * time.Second
	clockTime  = 200 * time.Millisecond
)

// physician is the doctor's part in a process: its examiner, what agents told it, its clock among others.
type physician struct {
	examiner *examiner.Examiner
	p        *Process
	api      *corbelapi.Doctor
	outbox   chan doctor.Evidence // on agents; the newest alone

	mu   sync.Mutex // guards told
	told map[string]doctor.Evidence
}

func newPhysician(p *Process) (*physician, error) {
	d := &physician{p: p, outbox: make(chan doctor.Evidence, 1), told: map[string]doctor.Evidence{}}
	cfg := probe.Config{Member: p.Cfg.Node.Name, Role: doctor.RoleAgent, Version: version.Number, Metrics: p.Metrics,
		Dir: p.Cfg.DataDir, FS: p.FS, Clock: p.Clock, Log: p.Log,
		Addresses: d.addresses, Depends: p.doors.Dependencies, Host: &probe.Host{Ports: d.ports, Peer: d.peer,
			Cards: p.Faults.Cards}}
	if p.Cfg.Server {
		cfg.Role = doctor.RoleServer
	} else {
		cfg.Tell = d.tell
	}
	cfg.Others, cfg.Fresh = p.doors.Registries(), p.doors.Refresh
	var err error
	if d.examiner, err = examiner.New(cfg); err != nil {
		return nil, err
	}
	d.api = corbelapi.NewDoctor(corbelapi.Config{Evidence: d.evidence, Others: d.others, Ask: d.ask, Allow: d.allow,
		Profile: d.examiner.Profile})
	p.RPCSrv.Handle(wire.Members, methodClock, func(context.Context, []byte) ([]byte, error) {
		return pack.Uint(nil, uint64(p.Clock.Now().UnixNano())), nil
	})
	if p.Cfg.Server {
		p.RPCSrv.Handle(wire.Members, methodTell, d.listen)
	}
	return d, nil
}

// run gathers, compares clocks and, on agents, tells a server, until ctx ends.
func (d *physician) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.clocks(ctx) })
	if !d.p.Cfg.Server {
		wg.Go(func() { d.report(ctx) })
	}
	return d.examiner.Run(ctx)
}

// addresses are those at which others know this process.
func (d *physician) addresses() []string {
	cfg := d.p.Cfg
	out := []string{d.p.RPCAddr()}
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
func (d *physician) ports() []int {
	seen := map[int]bool{d.p.RPCPort(): true}
	out := []int{d.p.RPCPort()}
	for _, m := range d.p.Pool.Members(member.ActAskServer) {
		if port, err := strconv.Atoi(m.Tags["port"]); err == nil && !seen[port] {
			seen[port] = true
			out = append(out, port)
		}
	}
	return out
}

// peer names the member at an address: by address and port where it is dialed, by address alone where it is the only
// one there.
func (d *physician) peer(ip string, port int) string {
	name := ""
	for _, m := range d.p.Pool.Members(member.ActShow) {
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

func (d *physician) allow(r *http.Request) bool {
	return d.p.access.allows(r, plane.Right{Resource: acl.Operator, Level: acl.Read})
}

// evidence is this process's own, then what agents told it.
func (d *physician) evidence() []doctor.Evidence {
	out := []doctor.Evidence{d.examiner.Evidence()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.told {
		if time.Since(e.At) > toldFor {
			delete(d.told, name)
			continue
		}
		out = append(out, e)
	}
	return out
}

// others are the servers besides this process: those that gossip believes dead, and those that have a vote though
// gossip has forgotten them, are named as silent.
func (d *physician) others() []corbelapi.Member {
	var out []corbelapi.Member
	votes := d.votes()
	for _, m := range d.p.Pool.Members(member.ActAskServer) {
		_, voter := votes[m.Tags["id"]]
		delete(votes, m.Tags["id"])
		if m.Name != d.p.Cfg.Node.Name && (voter || m.Status != member.Left) {
			out = append(out, corbelapi.Member{Name: m.Name, Role: doctor.RoleServer})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(votes)) {
		if id != d.p.ID {
			out = append(out, corbelapi.Member{Name: "server " + id + " at " + votes[id], Role: doctor.RoleServer})
		}
	}
	return out
}

// votes are the addresses of the voters of the Raft groups that this process is in, by id.
func (d *physician) votes() map[string]string {
	out := map[string]string{}
	for _, one := range d.p.raftPlanes() {
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
func (d *physician) ask(ctx context.Context, name string, r *http.Request) ([]doctor.Evidence, error) {
	there := r.Clone(ctx)
	there.URL.Path, there.URL.RawPath, there.URL.RawQuery = reachPrefix+name+"/v1/doctor/evidence", "", ""
	there.Header.Del("Accept-Encoding")
	w := &httpx.Recorder{Head: http.Header{}, Most: maxAnswerBytes}
	if err := httpx.Whole(func() { d.p.reach(w, there) }); err != nil {
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

// tell hands evidence to report; what is there already is older.
func (d *physician) tell(e doctor.Evidence) {
	for {
		select {
		case d.outbox <- e:
			return
		default:
		}
		select {
		case <-d.outbox:
		default:
		}
	}
}

// report brings what this agent found to a server.
func (d *physician) report(ctx context.Context) {
	for {
		var e doctor.Evidence
		select {
		case <-ctx.Done():
			return
		case e = <-d.outbox:
		}
		b, err := json.Marshal(e)
		if err != nil || len(b) > maxToldBytes {
			continue
		}
		server, err := d.p.anyServer()
		if err != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, corbelapi.GatherTimeout)
		_, err = d.p.RPC.Call(call, server, methodTell, pack.Bytes(pack.String(nil, d.p.agentToken()), b))
		cancel()
		if err != nil {
			d.p.Log.Debug("doctor: a server could not be told", "server", server, "error", err)
		}
	}
}

// listen takes an agent's evidence; beyond maxTold the oldest goes.
func (d *physician) listen(ctx context.Context, req []byte) ([]byte, error) {
	var e doctor.Evidence
	rd := pack.Read(req)
	token, told := rd.String(), rd.Bytes()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, "evidence", rd.Err())
	}
	if len(told) > maxToldBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "evidence of %d bytes", len(told))
	}
	if err := json.Unmarshal(told, &e); err != nil {
		return nil, errkind.E(errkind.Invalid, "evidence", err)
	}
	// Who may register the node may tell about it.
	grant, err := d.p.access.tokens.Grant(ctx, token)
	if err == nil {
		err = grant.Check(acl.Node, e.Member, acl.Write)
	}
	if err != nil {
		return nil, err
	}
	if m, ok := d.p.Pool.Member(member.ActAskMember, e.Member); !ok || m.Tags["role"] == base.RoleServer {
		return nil, errkind.Errorf(errkind.Invalid, "%q is no agent of this cluster", e.Member)
	}
	e.At = time.Now() // by this server's clock, which says when it is too old
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.told[e.Member]; !known && len(d.told) >= maxTold {
		oldest := ""
		for name, o := range d.told {
			if oldest == "" || o.At.Before(d.told[oldest].At) {
				oldest = name
			}
		}
		delete(d.told, oldest)
	}
	d.told[e.Member] = e
	return nil, nil
}

// clocks compares this process's wall clock with those of servers.
func (d *physician) clocks(ctx context.Context) {
	for {
		timer := time.NewTimer(clockEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for i, m := range d.p.Pool.Members(member.ActAskServer) {
			if m.Status != member.Alive || m.Name == d.p.Cfg.Node.Name || (!d.p.Cfg.Server && i > 2) {
				continue
			}
			d.compare(ctx, m)
		}
	}
}

// compare asks one server for the time. An answer that took long says nothing.
func (d *physician) compare(ctx context.Context, m member.Member) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	sent := d.p.Clock.Now()
	b, err := d.p.RPC.Call(ctx, base.MemberRPC(m), methodClock, nil)
	took := time.Since(began)
	if err != nil || took > clockTime {
		return
	}
	theirs := time.Unix(0, int64(pack.Read(b).Uint()))
	offset := theirs.Sub(sent.Round(0)) - took/2
	d.p.Metrics.Gauge("peer.clock_offset_ms", "peer", m.Name).Set(float64(offset) / float64(time.Millisecond))
}
