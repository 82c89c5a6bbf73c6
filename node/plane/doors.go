package plane

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/telemetry"
)

// Doors is where planes mount what they offer to the outside, before the process runs. One goroutine uses it until all
// planes are open; afterwards it is read.
type Doors struct {
	*base.Base
	Catalog *raftgroup.Group // the catalog's, with its registry; nil on agents
	Planes  *Set             // those that are open so far
	Local   *local.Local     // what is registered on this host
	Ending  atomic.Bool      // the process drains: nothing is ready any more

	plane      string // that is opened now
	routes     *http.ServeMux
	groups     []*raftgroup.Group
	registries []*telemetry.Registry
	fresh      []func()
	depends    []func() []doctor.Dependency
	debug      map[string]func() any
	access     Access
	front      Front
	api        http.Handler // of the process's own HTTP ports
}

// Access turns tokens into rights.
type Access interface {
	// Grant is what a token may do; it fails with kind Denied for one that is not known.
	Grant(ctx context.Context, token string) (*acl.Grant, error)
	// GrantWithin is Grant with what is known since age at most: for what lives long.
	GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error)
	// Secret is the token that a request is judged by: its own, or else this process's default.
	Secret(r *http.Request) string
	// Allows tells whether that token has a right.
	Allows(r *http.Request, right Right) bool
}

// Front is what is at all ports for HTTP of a process, whichever plane's they are: the web UI.
type Front struct {
	serves func(path string) bool
	page   http.Handler // nil until it was set
}

// Set has h answer the paths that serves takes. It judges on its own who may have what.
func (f *Front) Set(serves func(path string) bool, h http.Handler) { f.serves, f.page = serves, h }

// Before adds to the handler of a port what Set has said by the time a request comes.
func (f *Front) Before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.page != nil && f.serves(r.URL.Path) {
			f.page.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// OwnAPI answers what the process's own HTTP ports answer. It may be called once the process runs.
func (d *Doors) OwnAPI() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.api.ServeHTTP(w, r) })
}

// SetOwnAPI says what that is.
func (d *Doors) SetOwnAPI(h http.Handler) { d.api = h }

// SetFront has h answer, at all ports for HTTP, the paths that serves takes. It judges on its own who may have what.
func (d *Doors) SetFront(serves func(path string) bool, h http.Handler) { d.front.Set(serves, h) }

// Front adds to the handler of a port what SetFront has said by the time a request comes. Requests come when all planes
// are open.
func (d *Doors) Front(h http.Handler) http.Handler { return d.front.Before(h) }

// Grant is what a token of the catalog may do.
func (d *Doors) Grant(ctx context.Context, token string) (*acl.Grant, error) {
	return d.access.Grant(ctx, token)
}

// GrantWithin is Grant with what is known since age at most: for what lives long.
func (d *Doors) GrantWithin(ctx context.Context, token string, age time.Duration) (*acl.Grant, error) {
	return d.access.GrantWithin(ctx, token, age)
}

// Secret is the token that a request is judged by: its own, or else this process's default.
func (d *Doors) Secret(r *http.Request) string { return d.access.Secret(r) }

// Allows tells whether the token of a request has a right.
func (d *Doors) Allows(r *http.Request, right Right) bool { return d.access.Allows(r, right) }

// Right is what the token of a request needs: a level on a resource, by its name where it has one.
type Right struct {
	Resource acl.Resource
	Name     string
	Level    acl.Level
}

// NewDoors makes the doors of a process. catalog is nil on agents; access judges requests.
func NewDoors(b *base.Base, catalog *raftgroup.Group, access Access) *Doors {
	return &Doors{Base: b, Catalog: catalog, routes: http.NewServeMux(), debug: map[string]func() any{}, access: access}
}

// Route answers a pattern of http.ServeMux on the process's HTTP ports, to those who have the right.
func (d *Doors) Route(pattern string, right Right, h http.Handler) {
	d.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if !d.access.Allows(r, right) {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Handle answers an RPC to peers of these roles.
func (d *Doors) Handle(roles wire.Roles, method string, h rpc.Handler) {
	d.RPCSrv.Handle(roles, method, h)
}

// HandleStream answers a streaming RPC to peers of these roles.
func (d *Doors) HandleStream(roles wire.Roles, method string, h rpc.StreamHandler) {
	d.RPCSrv.HandleStream(roles, method, h)
}

// Listen accepts streams of a protocol of the wire from peers of these roles.
func (d *Doors) Listen(proto wire.Protocol, number uint8, roles wire.Roles) net.Listener {
	return d.Wire.Listen(proto, number, roles)
}

// Group makes the Raft group of the plane on a server: number is its own on the wire, for ever. The plane runs it. It
// counts for the health of this server, and for who is asked before a server goes.
func (d *Doors) Group(number uint8, machine group.Machine) *raftgroup.Group {
	d.Tag(d.plane, "1")
	g := raftgroup.NewOf(d.Base, d.Catalog, d.plane, number, machine)
	d.groups = append(d.groups, g)
	return g
}

// Tag adds a gossip tag.
func (d *Doors) Tag(key, value string) { d.DeclareTag(key, value) }

// Evidence has the doctor follow a registry of the plane's own, beside the process's Metrics.
func (d *Doors) Evidence(r *telemetry.Registry) { d.registries = append(d.registries, r) }

// Fresh is called before the doctor reads, by one goroutine; it must not block.
func (d *Doors) Fresh(f func()) { d.fresh = append(d.fresh, f) }

// Depends tells the doctor the systems that the plane waits for.
func (d *Doors) Depends(f func() []doctor.Dependency) { d.depends = append(d.depends, f) }

// Debug is the plane's part of the debug archive: what f returns, as JSON.
func (d *Doors) Debug(f func() any) { d.debug[d.plane] = f }

// What follows is the process's side of the doors.

// Handler is who answers r; nil is none of the planes.
func (d *Doors) Handler(r *http.Request) http.Handler {
	if h, pattern := d.routes.Handler(r); pattern != "" {
		return h
	}
	return nil
}

// Groups are the Raft groups of the planes beside the catalog's.
func (d *Doors) Groups() []*raftgroup.Group { return d.groups }

// AllGroups are the Raft groups that this server is, or is to be, a member of; none on agents.
func (d *Doors) AllGroups() []*raftgroup.Group {
	if d.Catalog == nil {
		return nil
	}
	return append([]*raftgroup.Group{d.Catalog}, d.groups...)
}

// Replay is how many entries of the logs of all planes were applied here, and how many there are; zeros on agents.
func (d *Doors) Replay() (applied, last uint64) {
	for _, g := range d.AllGroups() {
		raft := g.Raft.Load()
		if raft == nil {
			continue
		}
		stats := raft.Stats()
		has, _ := strconv.ParseUint(stats["fsm_applied_index"], 10, 64) // absent while out of service
		of, _ := strconv.ParseUint(stats["last_log_index"], 10, 64)
		applied, last = applied+min(has, of), last+of
	}
	return applied, last
}

// Registries are those of the planes.
func (d *Doors) Registries() []*telemetry.Registry { return d.registries }

// Refresh calls all Fresh.
func (d *Doors) Refresh() {
	for _, f := range d.fresh {
		f()
	}
}

// Dependencies are those of all planes.
func (d *Doors) Dependencies() (out []doctor.Dependency) {
	for _, f := range d.depends {
		out = append(out, f()...)
	}
	return out
}

// ServeDebug answers with the planes' parts of the debug archive, by plane.
func (d *Doors) ServeDebug(w http.ResponseWriter, r *http.Request) {
	if !d.access.Allows(r, Right{Resource: acl.Operator, Level: acl.Read}) {
		http.Error(w, "Permission denied: the state of planes needs operator:read", http.StatusForbidden)
		return
	}
	parts := map[string]any{}
	for name, f := range d.debug {
		parts[name] = f()
	}
	text, err := json.Marshal(parts)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, http.StatusOK, httpx.JSONType, append(text, '\n'))
}
