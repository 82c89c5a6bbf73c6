// Package peers keeps the connections between peered clusters, on servers: it makes tokens and uses them, answers the
// servers of the clusters that used ours, and on the leader connects to those whose token was used here. What may go
// to and fro is decided in catalog/peering.
//
// The leader alone does all of it. A server that does not lead passes what another cluster asks on to the leader, once.
// A peer is known by its secret in every request, and so by nothing else: who may connect at all is wire's TLS.Peers.
package peers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// The times of a peering.
const (
	// heartbeat is how long either side is silent at most when it has nothing to say.
	heartbeat = 3 * time.Second
	// silent is how long a peer may be so before the peering is failing: some heartbeats, and the time in which the
	// other cluster finds another leader.
	silent = 15 * time.Second
	// answerWithin bounds a call, beside what it waits on purpose.
	answerWithin = 10 * time.Second
	// pace is the least time between two looks at what changed.
	pace = 200 * time.Millisecond
	// tellWithin is how long a peering that is deleted waits for its peer to be told.
	tellWithin = 2 * heartbeat
)

// Catalog is the part of the registry that peerings need.
type Catalog interface {
	State() *statestore.State
	SetRecords(ctx context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error)
	Await(ctx context.Context, s registry.Subject, min uint64, wait time.Duration,
		indexOf func(*statestore.State) uint64) *statestore.State
}

// Leader tells who leads.
type Leader interface {
	IsLeader() bool
	LeaderChanges() <-chan struct{}
}

// Mesh is this cluster's own mesh.
type Mesh interface {
	// Domain is its trust domain, "" before it has one.
	Domain(st *statestore.State) string
	// Gateways are the addresses of its mesh gateways; through tells that peers come to the servers by them.
	Gateways(st *statestore.State) (addresses []string, through bool)
	// Trust is what a peer is told of it, nil while there is nothing to tell.
	Trust(st *statestore.State, peer string) *peered.Trust
}

// Config says what a Manager is made of. All fields but Mesh, Clock, Log and Metrics are needed.
type Config struct {
	Catalog Catalog
	Leader  Leader
	// CallLeader passes a request on to the server that leads.
	CallLeader func(ctx context.Context, method string, req []byte) ([]byte, error)
	Wire       *wire.Wire
	// Datacenter is this cluster's, ServerName what its servers' certificates show, Roots those who signed them, in
	// PEM, and Addresses where they listen.
	Datacenter string
	ServerName string
	Roots      func() ([]string, error)
	Addresses  func() []string
	Mesh       Mesh // nil where the mesh is switched off
	Clock      clock.Clock
	Log        *slog.Logger
	Metrics    *telemetry.Registry
}

// Manager keeps a server's peerings.
type Manager struct {
	cfg  Config
	gate *limit.Gate

	mu    sync.Mutex // guards all below
	since time.Time  // when this server began to lead; zero while it does not
	links map[string]*link
}

// New makes a Manager; it starts nothing.
func New(cfg Config) *Manager {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{cfg: cfg, links: map[string]*link{}, gate: limit.NewGate(limit.GateConfig{Name: "peering", Slots: 16,
		MaxWaiting: 256, Clock: cfg.Clock})}
	export(m)
	return m
}

// Accepts tells whether a server of another cluster may connect: while a token of this cluster is about, or was used.
func (m *Manager) Accepts() bool {
	st := m.cfg.Catalog.State()
	if st.RecordsIndex(catalog.RecordPeering) <= 1 { // the usual case costs nothing
		return false
	}
	for p := range peering.All(st) {
		if p.Accept != nil {
			return true
		}
	}
	return false
}

// errNotLeader has the request passed on.
var errNotLeader = errkind.New(errkind.NotLeader, "this server is not the leader")

// GenerateToken makes a token by which another cluster becomes the peer of a name. Each token takes the place of the
// one before; a peer that is connected stays so until the new one is used. Errors: Invalid, NotLeader, and those of
// the log.
func (m *Manager) GenerateToken(ctx context.Context, in peering.TokenRequest) (string, error) {
	if err := check(in.PeerName, in.Meta); err != nil {
		return "", err
	}
	if err := peering.CheckAddresses("ServerExternalAddresses", in.External); err != nil {
		return "", err
	}
	if !m.cfg.Leader.IsLeader() {
		return "", errNotLeader
	}
	p, err := peering.Named(m.cfg.Catalog.State(), in.PeerName)
	switch {
	case err != nil:
		return "", err
	case p == nil:
		p = &peering.Peering{ID: uuid.NewString(), Name: in.PeerName, State: peering.Pending}
	case p.State == peering.Deleting:
		return "", deleting(p)
	case p.Dials():
		return "", errkind.Errorf(errkind.Invalid, "cannot create peering with name: %q; there is already an "+
			"established peering", p.Name)
	case p.State == peering.Terminated:
		p.State, p.PeerID = peering.Pending, ""
	}
	token := peering.Token{Manual: in.External, Addresses: m.cfg.Addresses(), ServerName: m.cfg.ServerName,
		PeerID: p.ID, Secret: secret(), Remote: self(m.cfg.Datacenter)}
	if token.CA, err = m.cfg.Roots(); err != nil {
		return "", err
	}
	if err := throughGateways(m, &token); err != nil {
		return "", err
	}
	if p.Accept == nil {
		p.Accept = &peering.Accept{}
	}
	p.Accept.Pending = peering.Hash(token.Secret)
	if in.Meta != nil {
		p.Meta = in.Meta
	}
	return token.Encode(), m.put(ctx, p)
}

// throughGateways has a token lead to this cluster's mesh gateways, where peers are to come through those.
func throughGateways(m *Manager, token *peering.Token) error {
	if m.cfg.Mesh == nil || len(token.Manual) > 0 {
		return nil
	}
	addresses, through := m.cfg.Mesh.Gateways(m.cfg.Catalog.State())
	switch {
	case !through:
		return nil
	case len(token.CA) == 0:
		return errkind.New(errkind.Invalid, "Peering.PeerThroughMeshGateways: a gateway knows servers by the name that TLS "+
			"asks for, and these have none on port 8300: set tls.internal_rpc")
	case len(addresses) == 0:
		return errkind.New(errkind.Invalid, "Peering.PeerThroughMeshGateways: no mesh gateway is registered: run one "+
			"(corbel connect envoy --gateway mesh --register), or give ServerExternalAddresses")
	}
	token.Addresses = addresses
	return nil
}

func check(name string, meta map[string]string) error {
	if err := peering.CheckName(name); err != nil {
		return err
	}
	return peering.CheckMeta(meta)
}

func deleting(p *peering.Peering) error {
	return errkind.Errorf(errkind.Unavailable, "the peering %q is being deleted: try again in a moment", p.Name)
}

// self is what a peer is told of this cluster.
func self(datacenter string) peering.Remote {
	return peering.Remote{Partition: "default", Datacenter: datacenter}
}

// secret makes one that nobody guesses.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// put stores p where it was read from, or where none is.
func (m *Manager) put(ctx context.Context, p *peering.Peering) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, ok, err := m.cfg.Catalog.SetRecords(ctx, p.Put())
	if err == nil && !ok {
		err = errkind.Errorf(errkind.Unavailable, "the peering %q was changed by somebody else meanwhile: try again", p.Name)
	}
	return err
}

// Establish uses a token: it is shown to the cluster that made it, which takes it once. Errors: Invalid, Denied for a
// token that is used or not known there, Unavailable when no server there answers, NotLeader, and those of the log.
func (m *Manager) Establish(ctx context.Context, in peering.EstablishRequest) error {
	if err := check(in.PeerName, in.Meta); err != nil {
		return err
	}
	token, err := peering.ReadToken(in.PeeringToken)
	if err != nil {
		return err
	}
	if !m.cfg.Leader.IsLeader() {
		return errNotLeader
	}
	p, err := m.toEstablish(in.PeerName, token)
	if err != nil {
		return err
	}
	p.State, p.PeerID, p.Remote = peering.Establishing, token.PeerID, token.Remote
	p.Dial = &peering.Dial{CAPems: token.CA, ServerName: token.ServerName, Addresses: token.Targets(), Secret: secret()}
	if in.Meta != nil {
		p.Meta = in.Meta
	}
	reply, err := m.anyAddress(ctx, p, peering.MethodEstablish, &peering.Ask{ID: token.PeerID, Secret: token.Secret,
		From: p.ID, Stream: p.Dial.Secret, Remote: self(m.cfg.Datacenter)})
	if refused(err) {
		return errkind.E(errkind.Invalid, "PeeringToken", err)
	}
	if err != nil {
		return err
	}
	if reply.Remote.Datacenter != "" {
		p.Remote = reply.Remote
	}
	return m.put(ctx, p)
}

// toEstablish is the peering that a token is to be used for: a new one, or the one that was made with an earlier token
// of the same peer.
func (m *Manager) toEstablish(name string, token *peering.Token) (*peering.Peering, error) {
	st := m.cfg.Catalog.State()
	own, err := peering.ByID(st, token.PeerID)
	if err != nil {
		return nil, err
	}
	if own != nil {
		return nil, errkind.New(errkind.Invalid, "cannot create a peering within the same cluster")
	}
	p, err := peering.Named(st, name)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return &peering.Peering{ID: uuid.NewString(), Name: name}, nil
	case p.State == peering.Deleting:
		return nil, deleting(p)
	case !p.Dials():
		return nil, errkind.Errorf(errkind.Invalid, "cannot create peering with name: %q; there is an existing peering "+
			"expecting to be dialed", name)
	case p.PeerID != token.PeerID:
		return nil, errkind.Errorf(errkind.Invalid, "cannot create peering with name: %q; that is another cluster's, or an "+
			"earlier peering with this one: delete it first", name)
	}
	return p, nil
}

// Delete begins the end of a peering; one that is not there is none already. The leader tells the peer, forgets what
// came from it, and removes it.
func (m *Manager) Delete(ctx context.Context, name string) error {
	if !m.cfg.Leader.IsLeader() {
		return errNotLeader
	}
	p, err := peering.Named(m.cfg.Catalog.State(), name)
	if err != nil || p == nil || p.State == peering.Deleting {
		return err
	}
	told := p.State == peering.Terminated || p.PeerID == "" // or there is nobody: a token that was never used
	p.State, p.DeletedAt = peering.Deleting, m.cfg.Clock.Now().UTC()
	if err := m.put(ctx, p); err != nil || !told {
		return err
	}
	if p, err = peering.Named(m.cfg.Catalog.State(), name); err != nil || p == nil || p.State != peering.Deleting {
		return err
	}
	return m.remove(ctx, p)
}

// forgetAtOnce is how many imported services one command removes.
const forgetAtOnce = 500

// forget removes all that was imported from a peer.
func (m *Manager) forget(ctx context.Context, name string) error {
	for {
		ops := peering.Forget(m.cfg.Catalog.State(), name, forgetAtOnce)
		if len(ops) == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		_, _, err := m.cfg.Catalog.SetRecords(ctx, ops...)
		cancel()
		if err != nil {
			return err
		}
	}
}

// remove ends a peering whose peer needs to be told nothing more.
func (m *Manager) remove(ctx context.Context, p *peering.Peering) error {
	if err := m.forget(ctx, p.Name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, _, err := m.cfg.Catalog.SetRecords(ctx, p.Drop())
	return err
}

// terminated notes that the peer has deleted its side.
func (m *Manager) terminated(ctx context.Context, id string) error {
	p, err := peering.ByID(m.cfg.Catalog.State(), id)
	if err != nil || p == nil || p.State == peering.Terminated || p.State == peering.Deleting {
		return err
	}
	m.cfg.Log.Info("the peer has deleted the peering", "peer", p.Name)
	p.State = peering.Terminated
	if err := m.put(ctx, p); err != nil {
		return err
	}
	return m.forget(ctx, p.Name)
}

// exporter is what a peer is sent by, over one connection.
func (m *Manager) exporter(p *peering.Peering) *source {
	s := &source{Exporter: peering.Exporter{Peer: p.Name}}
	if m.cfg.Mesh != nil {
		s.Trust = m.cfg.Mesh.Trust
	}
	return s
}

// importer is what takes in what a peer sends, over one connection.
func (m *Manager) importer() *peering.Importer {
	im := &peering.Importer{}
	if m.cfg.Mesh != nil {
		im.Domain = m.cfg.Mesh.Domain(m.cfg.Catalog.State())
	}
	return im
}

// take stores what a peer sent. A peering that is deleted meanwhile takes nothing in.
func (m *Manager) take(ctx context.Context, id string, im *peering.Importer, b *peering.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var ops []catalog.RecordOp
	for tries := 0; ; tries++ {
		st := m.cfg.Catalog.State()
		p, err := peering.ByID(st, id)
		switch {
		case err != nil:
			return err
		case p == nil || !p.Lives():
			return errGone
		}
		if tries == 0 {
			ops, err = im.Take(st, p, b)
			if doubt := im.Doubt(); doubt != "" && len(b.Trust) > 0 {
				m.cfg.Log.Warn("proxies of a peer are not believed", "peer", p.Name, "reason", doubt)
			}
			if err != nil || len(ops) == 0 {
				return err
			}
		}
		_, ok, err := m.cfg.Catalog.SetRecords(ctx, append(ops, p.Same())...)
		switch {
		case err != nil || ok:
			return err
		case tries == 3:
			return errkind.New(errkind.Unavailable, "the peering was changed meanwhile")
		}
	}
}

// activate notes that services go to and fro.
func (m *Manager) activate(ctx context.Context, id string) error {
	p, err := peering.ByID(m.cfg.Catalog.State(), id)
	if err != nil || p == nil || p.State != peering.Establishing {
		return err
	}
	p.State = peering.Active
	m.cfg.Log.Info("the peering is active", "peer", p.Name)
	return m.put(ctx, p)
}

var errGone = errkind.New(errkind.NotFound, "the peering is gone")
