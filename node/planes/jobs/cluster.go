package jobsplane

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/planes/jobsagent/nodecalls"
)

// methodHTTP is the RPC that carries a whole request of the API to the leader.
const methodHTTP = "jobs.http"

// maxBody bounds a request that is passed on.
const maxBody = 32 << 20

// cluster implements nomadrows.Cluster.
type cluster struct{ p *Plane }

// Forward implements nomadrows.Cluster: what a server that does not lead cannot answer goes to the leader.
func (c cluster) Forward(w http.ResponseWriter, r *http.Request, stale bool) bool {
	raft := c.p.group.raft
	if stale || raft.IsLeader() || r.Header.Get(passedOn) != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.p.d.Cfg.Limits.RPCClient+10*time.Minute)
	defer cancel()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		http.Error(w, "the request is too large or incomplete", http.StatusBadRequest)
		return true
	}
	b := pack.String(pack.String(nil, r.Method), r.URL.RequestURI())
	b = pack.Uint(b, uint64(len(forwarded)))
	for _, name := range forwarded {
		b = pack.String(pack.String(b, name), r.Header.Get(name))
	}
	b = pack.Bytes(b, body)
	reply, err := c.ask(ctx, b)
	if err != nil {
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
		return true
	}
	in := pack.Read(reply)
	status := int(in.Uint())
	for range in.Count() {
		name, value := in.String(), in.String()
		w.Header()[name] = append(w.Header()[name], value)
	}
	text := in.Bytes()
	if in.Err() != nil || status < 100 || status > 599 {
		http.Error(w, "the leader's answer cannot be read", http.StatusBadGateway)
		return true
	}
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that went away reads nothing
	return true
}

// passedOn marks a request that came from another server: it is not passed on again.
const passedOn = "X-Corbel-Passed-On"

// forwarded are the headers that mean something to the API.
var forwarded = []string{"X-Nomad-Token", "X-Consul-Token", "Authorization", "Content-Type", "Accept",
	nomadrows.Crossed}

// ask sends a request to the leader; while nobody leads it waits as long as a client is held.
func (c cluster) ask(ctx context.Context, req []byte) (reply []byte, err error) {
	raft := c.p.group.raft
	err = raft.Hold(ctx, func() error {
		addr, err := raft.Target()
		if err == nil {
			reply, err = raft.Base.RPC.Wait(ctx, addr, methodHTTP, req)
		}
		return err
	})
	if ctx.Err() == nil && (errkind.Is(err, errkind.NotLeader) || errkind.Is(err, errkind.Unavailable)) {
		err = errkind.New(errkind.Unavailable, "No cluster leader")
	}
	return reply, err
}

// serve answers methodHTTP.
func (c cluster) serve(ctx context.Context, req []byte) ([]byte, error) {
	if !c.p.group.raft.IsLeader() {
		return nil, errkind.New(errkind.NotLeader, "No cluster leader")
	}
	in := pack.Read(req)
	method, uri := in.String(), in.String()
	header := http.Header{passedOn: {"1"}}
	for range in.Count() {
		if name, value := in.String(), in.String(); value != "" {
			header.Set(name, value)
		}
	}
	body := in.Bytes()
	if in.Err() != nil {
		return nil, errkind.E(errkind.Invalid, methodHTTP, in.Err())
	}
	r, err := http.NewRequestWithContext(ctx, method, uri, bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, methodHTTP, err)
	}
	r.Header, r.RequestURI = header, uri
	w := &kept{header: http.Header{}, code: http.StatusOK}
	if err := httpx.ServeWhole(c.p.api, w, r); err != nil {
		return nil, err
	}
	b := pack.Uint(nil, uint64(w.code))
	n := 0
	for _, values := range w.header {
		n += len(values)
	}
	b = pack.Uint(b, uint64(n))
	for name, values := range w.header {
		for _, value := range values {
			b = pack.String(pack.String(b, name), value)
		}
	}
	return pack.Bytes(b, w.body.Bytes()), nil
}

// kept is an answer that is passed on whole.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(code int) { k.code = code }

// Write implements http.ResponseWriter.
func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }

// Leader implements nomadrows.Cluster.
func (c cluster) Leader() string { return c.p.group.raft.LeaderAddr() }

// Servers implements nomadrows.Cluster.
func (c cluster) Servers() (list []nomadrows.Server) {
	d := c.p.d
	voters := map[string]bool{}
	if raft := c.p.group.raft.Raft.Load(); raft != nil {
		if servers, _, err := raft.Configuration(); err == nil {
			for _, s := range servers {
				voters[s.ID] = s.Voter
			}
		}
	}
	leader := c.Leader()
	for _, m := range d.Pool.Members(member.ActAskServer) {
		if m.Tags[Name] == "" {
			continue
		}
		status := map[bool]string{true: "alive", false: "failed"}[m.Status == member.Alive]
		if m.Status == member.Left {
			status = "left"
		}
		addr := base.MemberRPC(m)
		list = append(list, nomadrows.Server{Name: m.Name, Address: addr, ID: m.Tags["id"], Status: status,
			Leader: addr == leader, Voter: voters[m.Tags["id"]], Datacenter: d.Cfg.Node.Datacenter, Region: c.p.keys.Region,
			Tags: m.Tags})
	}
	return list
}

// methodMonitor is the RPC by which servers follow each other's logs.
const methodMonitor = "jobs.monitor"

// Monitor implements nomadrows.Cluster.
func (c cluster) Monitor(ctx context.Context, s nomadrows.Server, call nomadrows.MonitorCall) (io.ReadCloser, error) {
	return nodecalls.Monitor(ctx, c.p.d.RPC, s.Address, methodMonitor, call)
}

// Regions implements nomadrows.Cluster.
func (c cluster) Regions() nomadrows.Regions {
	if c.p.regions == nil {
		return nil
	}
	return c.p.regions
}

// Self implements nomadrows.Cluster.
func (c cluster) Self() nomadrows.Self {
	d := c.p.d
	return nomadrows.Self{Name: d.Cfg.Node.Name, Region: c.p.keys.Region, Datacenter: d.Cfg.Node.Datacenter,
		Version: version.Number, Server: true, Node: c.p.here(), Config: map[string]any{},
		Stats: map[string]map[string]string{}}
}

// here is the node that this process's agent registered, zero when there is none.
func (p *Plane) here() (id jobs.ID) {
	for u := range p.store.View().State.Uses() {
		if u.Node.Name == p.d.Cfg.Node.Name {
			return u.Node.ID
		}
	}
	return id
}
