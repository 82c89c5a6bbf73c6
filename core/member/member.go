// Package member keeps track of who is in the cluster: a gossip pool on
// memberlist, with the statuses, key rotation and persistence that operators of
// gossip pools know.
//
// What always holds:
//   - A member that announced its departure becomes left, one that stopped
//     answering becomes failed. Failed members are tried again every
//     ReconnectInterval and forgotten after ReconnectTimeout, left ones after
//     TombstoneTimeout.
//   - A process's announcements are bound to its epoch (the time at which it
//     started, part of its metadata), so that a late leave of the former process
//     never takes down the new one of the same name.
//   - Callbacks of memberlist only change a map under a short lock and never wait
//     for anybody: a slow consumer of Changes cannot slow gossip down. Changes
//     says that something changed, Members what is; nothing is queued per event.
//   - What gossip starts stands in one table (Act), which says who may start it.
//     Key operations are none of it: servers carry them, see Config.Carry.
//   - A member that did not say that it leaves refutes who says so in its name.
//
// New checks and reads files, Run opens the network and owns the goroutines (but
// for memberlist's own, which end shortly after Run without being waited for).
// Join, Leave and the key operations wait for Run to be up. All methods are safe
// for concurrent use.
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/telemetry"
	"github.com/hashicorp/memberlist"
)

// Status is what the pool thinks of a member. The numbers are part of the catalog API's contract.
type Status uint8

// The statuses.
const (
	Alive   Status = 1
	Leaving Status = 2
	Left    Status = 3
	Failed  Status = 4
)

var statusNames = [...]string{"none", "alive", "leaving", "left", "failed"}

// String returns the word that `members` prints.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "none"
}

// Member is one member as the pool sees it. Tags are shared: they must not be changed.
type Member struct {
	Name   string
	Addr   string // IP address
	Port   int
	Tags   map[string]string
	Status Status
	// Since is when the status was first seen here.
	Since time.Time
	// The versions of the gossip protocol that the member speaks, and those of its
	// delegate; zero for members known by hearsay only.
	ProtocolMin, ProtocolMax, ProtocolCur uint8
	DelegateMin, DelegateMax, DelegateCur uint8
}

// Profile chooses gossip timings.
type Profile uint8

// The profiles. Local is for members on one machine: quick detection, more traffic.
const (
	LAN Profile = iota
	WAN
	Local
)

// DefaultPort is the port of join addresses that name none; see Config.JoinPort.
const DefaultPort = 8301

// Config describes this member and its pool. The zero value of each field means its default.
type Config struct {
	// Name is unique in the pool. Required.
	Name string
	// Bind is host:port for TCP and UDP; port 0 takes a free one. "0.0.0.0:8301".
	Bind string
	// Advertise is the IP, or IP:port, that others reach this member at; the bound one.
	Advertise string
	// Tags describe this member to all others; at most 512 bytes when encoded.
	Tags map[string]string

	// JoinPort is the port of join addresses that name none; DefaultPort.
	JoinPort int

	// Encrypt is a base64 key of 16, 24 or 32 bytes; "" with no keyring file means
	// plain gossip. With a keyring file, the file's keys win.
	Encrypt string
	// KeyringFile keeps the keys over restarts; "" keeps them in memory.
	KeyringFile string
	// PlainIncoming and PlainOutgoing switch off encryption one way, for moving a
	// running pool to encryption.
	PlainIncoming, PlainOutgoing bool

	// SnapshotFile remembers the alive members, which are joined again at the next
	// start; "" remembers nothing. After a Leave only with RejoinAfterLeave.
	SnapshotFile     string
	RejoinAfterLeave bool

	Profile           Profile
	ReconnectInterval time.Duration // 30 s
	ReconnectTimeout  time.Duration // 72 h
	TombstoneTimeout  time.Duration // 24 h
	// LeaveTimeout bounds the announcement of a departure; 5 s.
	LeaveTimeout time.Duration

	// Accept refuses members by an error, such as those of another datacenter. It
	// runs inside gossip and must not block or call the Pool.
	Accept func(Member) error

	// Carry brings a key operation to another member, which hands it to AnswerKeys once it has made sure that a server
	// asks, and returns its answer. nil: nobody but this member can be told to change its keys.
	Carry func(ctx context.Context, to Member, req []byte) ([]byte, error)

	// Network replaces sockets in tests.
	Network *Network
	// Faults is asked before packets and streams come and go, as by core/wire; nil outside of fault runs.
	Faults  func(op, peer string) (hold time.Duration, err error)
	FS      vfs.FS
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *telemetry.Registry
}

func (c *Config) complete() error {
	var wrong []error
	if c.Name == "" {
		wrong = append(wrong, errors.New("name is empty"))
	}
	if len(c.Name) > maxNameBytes {
		wrong = append(wrong, fmt.Errorf("name is longer than %d bytes", maxNameBytes))
	}
	if c.Bind == "" {
		c.Bind = "0.0.0.0:" + strconv.Itoa(DefaultPort)
	}
	if _, _, err := splitHostPort(c.Bind, DefaultPort); err != nil {
		wrong = append(wrong, fmt.Errorf("bind: %w", err))
	}
	if c.Advertise != "" {
		if host, _, err := splitHostPort(c.Advertise, DefaultPort); err != nil {
			wrong = append(wrong, fmt.Errorf("advertise: %w", err))
		} else if net.ParseIP(host) == nil {
			wrong = append(wrong, fmt.Errorf("advertise: %q is not an IP address", host))
		}
	}
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&c.ReconnectInterval, 30 * time.Second}, {&c.ReconnectTimeout, 72 * time.Hour},
		{&c.TombstoneTimeout, 24 * time.Hour}, {&c.LeaveTimeout, 5 * time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.JoinPort == 0 {
		c.JoinPort = DefaultPort
	}
	if c.Carry == nil {
		c.Carry = func(context.Context, Member, []byte) ([]byte, error) { return nil, errNoCarrier }
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errkind.E(errkind.Invalid, "gossip", errors.Join(wrong...))
}

// splitHostPort is net.SplitHostPort with a default port.
func splitHostPort(addr string, port int) (string, int, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		var bad *net.AddrError
		if errors.As(err, &bad) && bad.Err == "missing port in address" {
			return addr, port, nil
		}
		if net.ParseIP(addr) != nil { // a bare IPv6 address
			return addr, port, nil
		}
		return "", 0, err
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q: %w", portText, errors.Unwrap(err))
	}
	return host, int(n), nil
}

// Pool is this process's membership.
type Pool struct {
	cfg     Config
	members *memberList
	keys    *keyring // nil: plain gossip
	queue   *memberlist.TransmitLimitedQueue
	events  *events

	ready   chan struct{} // closed when list is set
	stopped chan struct{} // closed when Run returns
	list    *memberlist.Memberlist
	local   string // advertised address, set with list
	port    int

	self *self

	end ending

	place *vivaldi.Client

	alarms alarms
}

// alarms are what others did wrong: names used twice, and members that were refused.
type alarms struct {
	conflicts, refused *telemetry.Counter
	conflict, refusal  note
}

// ending makes memberlist's Leave and Shutdown exclude each other.
type ending struct {
	// closing makes memberlist's Leave and Shutdown exclude each other: Leave panics
	// after Shutdown. It is held for at most LeaveTimeout, with no other lock.
	closing sync.Mutex
	closed  bool // guarded by closing
}

// New checks cfg and reads the keyring file. It starts nothing.
func New(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pool{
		cfg: cfg, events: newEvents(), self: newSelf(cfg.Clock), ready: make(chan struct{}), stopped: make(chan struct{}),
		place: vivaldi.NewClient(),
		alarms: alarms{conflicts: cfg.Metrics.Counter("serf.member.conflict"),
			refused: cfg.Metrics.Counter("gossip.refused")},
	}
	if err := p.self.describe(cfg.Tags); err != nil {
		return nil, err
	}
	var err error
	p.members = newMemberList(cfg)
	p.queue = &memberlist.TransmitLimitedQueue{RetransmitMult: 4, NumNodes: p.members.aliveCount}
	if p.keys, err = openKeyring(cfg); err != nil {
		return nil, err
	}
	return p, nil
}

// Changes returns a channel that is closed at the next change. Take it, then read
// Members, then wait on it: no change is missed.
func (p *Pool) Changes() <-chan struct{} { return p.members.changes() }

// Coordinate estimates where this member lies in the network, from the round trips of gossip's probes.
func (p *Pool) Coordinate() vivaldi.Coord { return p.place.Coord() }

// CoordinateOf is where another member lies, as it said when this one last probed it.
func (p *Pool) CoordinateOf(name string) (vivaldi.Coord, bool) { return p.members.place(name) }

// Encrypted tells whether gossip is encrypted.
func (p *Pool) Encrypted() bool { return p.keys != nil }

// Ready is closed when the network is open.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// Addr is the IP address and port that this member advertises; zero before Ready.
func (p *Pool) Addr() (ip string, port int) {
	select {
	case <-p.ready:
		return p.local, p.port
	default:
		return "", 0
	}
}

// HealthScore is memberlist's own view of how timely this process is: 0 is well.
func (p *Pool) HealthScore() int {
	select {
	case <-p.ready:
		return p.list.GetHealthScore()
	default:
		return 0
	}
}

// SetTags replaces this member's tags and tells the pool, within ctx.
func (p *Pool) SetTags(ctx context.Context, tags map[string]string) error {
	if err := p.up(ctx); err != nil {
		return err
	}
	if err := p.self.describe(tags); err != nil {
		return err
	}
	limit := p.cfg.LeaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return errkind.E(errkind.Unavailable, "gossip: tags", tell(limit, p.list.UpdateNode))
}

// Declare replaces the tags of the pool's own member before Run: they are part of the first word about it.
func Declare(p *Pool, tags map[string]string) error { return p.self.describe(tags) }

// Stopped tells whether Run has returned.
func (p *Pool) Stopped() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return false
	}
}

var errNoCarrier = errkind.New(errkind.Unavailable, "gossip: servers alone change the keys of others: ask one")

var errStopped = errkind.New(errkind.Unavailable, "gossip: not running")

// up waits until Run has opened the network.
func (p *Pool) up(ctx context.Context) error {
	// Both may be closed, and select would choose either.
	select {
	case <-p.stopped:
		return errStopped
	default:
	}
	select {
	case <-p.ready:
		return nil
	case <-p.stopped:
		return errStopped
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "gossip: waiting for the network", ctx.Err())
	}
}
