package group

import (
	"context"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/raftlog"
	"corbel.dev/corbel/kit/errkind"
)

// instance is one life of the Raft library on opened stores: from a start or a
// reopening to the stop or the first failure of store or machine.
type instance struct {
	g      *Group
	stores *raftdisk.Stores
	raft   *raft.Raft
	live   atomic.Pointer[raft.Raft] // as raft, for what the library may call while it starts
	guard  *raftdisk.Guard
	links  links
	fresh  *fresh

	lead  leading
	reach *reach

	life instanceLife

	observed chan raft.Observation
	suspect  chan struct{} // a connection from outside was lost
	members  []Server      // what MEMBERS holds; keepNotes only
}

// instanceLife is how an instance ends.
type instanceLife struct {
	failure atomic.Pointer[trouble]
	failed  chan struct{} // closed by the first failure
	stop    chan struct{} // closed when the instance ends; its goroutines then do
	ended   chan struct{} // closed when nothing more is answered
	wg      sync.WaitGroup
}

// leading is what an instance keeps while it leads.
type leading struct {
	succession *succession
	// ready is the term in which an entry of this leader was committed and applied here; 0 when it does not lead.
	ready     atomic.Uint64
	restoring chan struct{} // holds one element while an operator's snapshot replaces the state
	handing   atomic.Bool   // leadership is being given away: nothing new is taken
}

// links are an instance's ways to the other members.
type links struct {
	streams *streams
	trans   *transport
	peers   *peers
	mute    *raftdisk.Mute
}

// begin builds an instance. On an error everything is closed again.
func (g *Group) begin(s *raftdisk.Stores) (*instance, error) {
	in := &instance{g: g, stores: s, life: instanceLife{
		failed: make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{}),
	},
		observed: make(chan raft.Observation, 64), suspect: make(chan struct{}, 1),
		lead: leading{restoring: make(chan struct{}, 1)}}
	in.guard = raftdisk.NewGuard(s, in.due, in.fail)
	in.links.streams = &streams{addr: g.cfg.LocalAddr, dialFunc: g.cfg.Dial, incoming: make(chan net.Conn),
		done:  make(chan struct{}),
		conns: map[*trackedConn]struct{}{}, lostIncoming: in.lostIncoming,
		self: g.cfg.LocalID, member: in.memberAt, statement: g.cfg.statement}
	in.reach = &reach{in: in, dropped: map[string]int64{}}
	in.links.peers = &peers{clock: g.cfg.Clock, base: g.cfg.Clock.Now(), self: g.cfg.LocalID, lease: g.cfg.lease(),
		seen: map[string]*peerSeen{}, voters: in.voters}
	in.links.streams.dialTimeout, in.links.streams.now = g.cfg.dialTimeout(), in.links.peers.now
	in.links.trans = &transport{streams: in.links.streams, peers: in.links.peers, reach: in.reach, committed: in.committed,
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: in.links.streams,
			MaxPool:         3,
			MaxRPCsInFlight: 1, Timeout: 10 * time.Second, Logger: raftlog.Logger{To: g.cfg.Log},
			MsgpackUseNewTimeFormat: true})}
	in.lead.succession = &succession{in: in}
	in.links.trans.succession = in.lead.succession
	if s.Lost {
		in.links.mute = raftdisk.NewMute(s.Newest, in.header)
		in.links.trans.mute = in.links.mute
	}
	in.fresh = &fresh{reached: in.reached, term: in.term}
	in.links.trans.inbox = &inbox{fresh: in.fresh, mute: in.links.mute, succession: in.lead.succession, guard: in.guard,
		out: make(chan raft.RPC), disown: in.disown}
	arrivals := in.links.trans.NetworkTransport.Consumer()
	if g.cfg.meddle != nil {
		meddled := make(chan raft.RPC)
		in.life.wg.Go(func() { g.cfg.meddle(in.life.stop, in.links.trans.NetworkTransport.Consumer(), meddled) })
		arrivals = meddled
	}
	in.life.wg.Go(func() { in.links.trans.inbox.run(in.life.stop, arrivals) })
	if err := in.startRaft(); err != nil {
		close(in.life.stop)
		_ = in.links.trans.Close() // the first error is the one to report
		in.life.wg.Wait()
		s.Close()
		return nil, err
	}
	return in, nil
}

// reached reports whether the machine has everything up to index; entries without a command never reach
// it. That the log is long enough proves nothing: its tail may be a former leader's.
func (in *instance) reached(index uint64) bool {
	r := in.live.Load()
	if r == nil {
		return false
	}
	applied := in.g.fsm.applied.Load()
	return applied >= index || (r.CommitIndex() >= index && applied >= in.guard.NewestCommand.Load())
}

// due reports whether the entry is the machine's next, or one of those behind it that are committed.
func (in *instance) due(index uint64) bool {
	r := in.live.Load()
	return r != nil && index <= r.CommitIndex() && index > r.AppliedIndex()
}

// committed returns the commit index of the leader of term and for how long no quorum has
// confirmed it; 0 when it does not lead or may lack what its predecessor committed.
func (in *instance) committed(term uint64) (index uint64, age time.Duration) {
	r := in.live.Load()
	if r == nil || in.lead.ready.Load() != term {
		return 0, 0
	}
	if age = in.links.peers.unconfirmed(); age == math.MaxInt64 {
		return 0, 0
	}
	return r.CommitIndex(), age // read last: it holds all that was committed age ago
}

func (in *instance) term() uint64 {
	if r := in.live.Load(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

func (in *instance) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(in.g.cfg.LocalID),
		Addr: []byte(in.g.cfg.LocalAddr)}
}

// commitTimeout is after which silence the leader tells followers how far the log is committed; the
// library draws between once and twice this. Whoever follows changes at a follower waits for
// it when nothing else is written: 50 ms, the library's default, was most of the time that a change took to
// reach agents. 10 ms cost some 70 small messages a second and follower.
const commitTimeout = 10 * time.Millisecond

func (in *instance) config() *raft.Config {
	cfg := in.g.cfg
	return &raft.Config{ProtocolVersion: raft.ProtocolVersionMax, HeartbeatTimeout: cfg.heartbeat(),
		ElectionTimeout:    cfg.heartbeat(),
		LeaderLeaseTimeout: cfg.lease(), CommitTimeout: commitTimeout, MaxAppendEntries: 512, BatchApplyCh: true,
		ShutdownOnRemove: false, TrailingLogs: cfg.trailing(), SnapshotInterval: cfg.SnapshotInterval,
		SnapshotThreshold: cfg.SnapshotThreshold, LocalID: raft.ServerID(cfg.LocalID),
		Logger: raftlog.Logger{To: cfg.Log},
		// The snapshot is in the machine already, and entries that the machine has are skipped.
		NoSnapshotRestoreOnStart: true, NoLegacyTelemetry: true}
}

// startRaft bootstraps or recovers where asked for, and starts the library.
func (in *instance) startRaft() (err error) {
	defer func() { // NewRaft panics when it cannot read its log
		if p := recover(); p != nil {
			err = errkind.Errorf(errkind.Unavailable, "start raft: %v", p)
			if t := in.life.failure.Load(); t != nil {
				err = t.err
			}
		}
	}()
	g := in.g
	logs, err := raft.NewLogCache(256, in.guard)
	if err != nil {
		return err
	}
	if err := in.recoverCluster(logs); err != nil {
		return err
	}
	if err := in.bootstrap(logs); err != nil {
		return errkind.E(errkind.Of(err), "bootstrap", err)
	}
	in.raft, err = raft.NewRaft(in.config(), g.fsm, logs, in.guard, in.stores.Snaps, in.links.trans)
	if err != nil {
		return err
	}
	in.live.Store(in.raft)
	in.guard.Armed.Store(true)
	in.raft.RegisterObserver(raft.NewObserver(in.observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState, raft.PeerObservation:
			return true
		}
		return false
	}))
	return nil
}

// currentTermKey is where the library keeps its term; bootstrapTerm is what a first configuration has.
const (
	currentTermKey = "CurrentTerm"
	bootstrapTerm  = 1
)

// bootstrap writes the first members into an empty log. A process that died, or whose disk failed,
// between the term and the entry left a term alone: the library calls that a member with a state, which
// then waits for others for ever. So the entry is missing as long as nobody else's term came in.
func (in *instance) bootstrap(logs raft.LogStore) error {
	boot := in.g.cfg.Bootstrap
	if in.stores.Lost || len(boot) == 0 {
		return nil
	}
	exists, err := raft.HasExistingState(logs, in.guard, in.stores.Snaps)
	if err != nil {
		return err
	}
	if !exists {
		return raft.BootstrapCluster(in.config(), logs, in.guard, in.stores.Snaps, in.links.trans,
			raftdisk.Configuration(boot))
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	term, err := in.guard.GetUint64([]byte(currentTermKey))
	if err != nil {
		return err
	}
	if list, _ := in.stores.Snaps.List(); last > 0 || len(list) > 0 || term > bootstrapTerm {
		return nil
	}
	return logs.StoreLog(&raft.Log{Index: 1, Term: bootstrapTerm, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raftdisk.Configuration(boot))})
}

// voters returns the ids of the latest configuration's voters.
func (in *instance) voters() []string {
	r := in.live.Load()
	if r == nil {
		return nil
	}
	var ids []string
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}

// memberAt returns the id of the member with an address in the latest configuration, "" when there is none.
func (in *instance) memberAt(addr string) string {
	if r := in.live.Load(); r != nil {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			if string(s.Address) == addr {
				return string(s.ID)
			}
		}
	}
	return ""
}

// fail ends the instance; the first failure counts. It never blocks.
func (in *instance) fail(err error) {
	if in.life.failure.CompareAndSwap(nil, &trouble{err}) {
		in.links.peers.depose(math.MaxUint64)
		in.g.metrics.fails.Add(1)
		close(in.life.failed)
	}
}

// errDisowned ends an instance whose newest snapshot the leader contradicts.
var errDisowned = errkind.New(errkind.Unavailable, "a snapshot that an operator restored is not the group's state: "+
	"the leader that took it was lost before enough servers had it; this server begins anew without it")

// errTakingOver refuses a leader that contradicts a snapshot which the machine is being given at the moment.
var errTakingOver = errkind.New(errkind.Unavailable, "an operator's snapshot is being taken over")

// disown gives up the newest snapshot. The next instance takes the machine back to what was before it.
func (in *instance) disown() {
	err := in.g.folder.Disown(in.stores, errDisowned)
	if err == nil {
		in.g.fsm.foreign.Store(true)
		err = errDisowned
	}
	in.fail(err)
}

// run serves until ctx ends or the instance fails, and closes everything.
func (in *instance) run(ctx context.Context) error {
	g := in.g
	if in.stores.Disk != nil {
		in.life.wg.Go(func() { in.stores.Disk.Run(in.life.stop) })
	}
	in.life.wg.Go(in.watch)
	in.life.wg.Go(in.keepNotes)
	in.life.wg.Go((&scrubber{in: in}).run)
	in.life.wg.Go(compactor{in}.run)
	g.trouble.Store(nil)
	g.current.Store(in)
	g.announce()
	in.startAlone()
	var err error
	select {
	case <-ctx.Done():
		in.handOver()
	case <-in.life.failed:
		err = in.life.failure.Load().err
	}
	g.current.Store(nil)
	g.announce()
	in.shutdown()
	return err
}

// startAlone lets the only voter lead at once: a shorter heartbeat timeout makes
// the library look at its timer now, and it has never heard a leader.
func (in *instance) startAlone() {
	if v := in.voters(); len(v) == 1 && v[0] == in.g.cfg.LocalID {
		in.electSoon(in.g.cfg.heartbeat() - time.Millisecond)
	}
}

// await waits for a library future, but not longer than ctx or the instance: a
// library goroutine that was ended by a failing disk never answers.
func (in *instance) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	in.bound(f)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-in.life.failed:
		return in.life.failure.Load().err
	case <-in.life.stop:
		return raft.ErrRaftShutdown
	}
}

// bound lets a future end with the instance. What waits in the library's queues when one of its goroutines
// was ended by a failing disk is never answered, and would keep the goroutine that waits for it for ever.
func (in *instance) bound(f raft.Future) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return
	}
	if field := v.Elem().FieldByName("ShutdownCh"); field.IsValid() && field.CanSet() {
		field.Set(reflect.ValueOf(in.life.ended)) // the library reads it in Error alone, which nobody has called yet
	}
}

// leads reports whether this server may take proposals.
func (in *instance) leads() bool {
	return in.raft.State() == raft.Leader && !in.lead.handing.Load() && !in.links.streams.shut.Load() &&
		in.raft.CurrentTerm() > in.links.peers.deposed.Load()
}

// shutdownWait bounds how long a stop waits for a library goroutine that hangs in a disk operation.
const shutdownWait = 5 * time.Second

// shutdown ends the library and all goroutines, and closes the stores. What
// hangs in the disk is left behind after shutdownWait and cleans up when it returns.
func (in *instance) shutdown() {
	g := in.g
	in.links.peers.end()
	g.batch.quiesce(2 * g.cfg.lease())
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.awaitRestore()
		_ = in.raft.Shutdown().Error() // it has none
		_ = in.links.trans.Close()
		in.links.trans.CloseStreams()
		in.life.wg.Wait()
		in.stores.Close()
	}()
	close(in.life.stop)
	timer := g.cfg.Clock.NewTimer(shutdownWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = in.links.streams.Close() // the others shall see that this member is gone
		g.cfg.Log.Error("raft cannot stop because a disk operation hangs; abandoning it")
	}
	close(in.life.ended)
	g.batch.abandonAll()
}

// awaitRestore lets the library finish replacing the state: it panics of a shutdown in the middle. When its
// goroutine was ended it never finishes, and cannot panic either.
func (in *instance) awaitRestore() {
	timer := in.g.cfg.Clock.NewTimer(shutdownWait / 2)
	defer timer.Stop()
	select {
	case in.lead.restoring <- struct{}{}:
	case <-timer.C:
	}
}

// watch follows what the library observes and runs the watchdogs. It never touches the disk's write path.
func (in *instance) watch() {
	step := in.g.cfg.heartbeat() / 20
	timer := in.g.cfg.Clock.NewTimer(step)
	defer timer.Stop()
	dog := &watchdog{in: in}
	for {
		select {
		case <-in.life.stop:
			return
		case o := <-in.observed:
			in.observe(o)
		case <-in.suspect:
			in.life.wg.Go(in.lead.succession.leaderLost)
		case <-timer.C:
			dog.look()
			timer.Reset(step)
		}
	}
}

func (in *instance) observe(o raft.Observation) {
	switch data := o.Data.(type) {
	case raft.RaftState:
		if data != raft.Leader {
			if in.lead.ready.Swap(0) != 0 {
				in.fresh.note(time.Now().Add(-in.links.peers.unconfirmed()))
			}
			in.links.peers.end()
		} else {
			in.life.wg.Go(in.becomeReady)
		}
	case raft.LeaderObservation:
		in.restoreTimeouts()
	}
	in.g.announce()
}

// becomeReady commits an entry of this term and waits until it and all before it are applied.
func (in *instance) becomeReady() {
	term := in.raft.CurrentTerm()
	barrier := in.raft.Barrier(10 * time.Second)
	if err := in.await(context.Background(), barrier); err != nil {
		return // it no longer leads
	}
	if f, ok := barrier.(raft.IndexFuture); ok {
		in.g.fsm.advance(f.Index()) // the machine has everything before it
	}
	if in.raft.State() == raft.Leader && in.raft.CurrentTerm() == term {
		in.lead.ready.Store(term)
		in.links.peers.refresh(term)
		in.g.announce()
	}
}

// keepNotes writes what stands beside the log. It may hang on the disk, so it is not part of watch.
func (in *instance) keepNotes() {
	step := in.g.cfg.heartbeat() / 10
	timer := in.g.cfg.Clock.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-in.life.stop:
			return
		case <-timer.C:
			in.saveMembers()
			in.liftMute()
			timer.Reset(step)
		}
	}
}

// liftMute lets a rebuilt member vote again.
func (in *instance) liftMute() {
	if in.links.mute == nil || !in.links.mute.Active.Load() || !in.links.mute.CaughtUp(in.raft.AppliedIndex()) {
		return
	}
	if err := in.g.folder.Rebuilt(); err != nil {
		in.g.cfg.Log.Error("cannot record that the log is complete again", "err", err)
		return
	}
	in.links.mute.Active.Store(false)
	in.g.cfg.Log.Info("the rebuilt log is complete; this server votes again", "applied_index", in.raft.AppliedIndex())
}

// saveMembers keeps the committed members beside the log.
func (in *instance) saveMembers() {
	if in.stores.Disk == nil {
		return
	}
	now := raftdisk.Members(in.raft.GetConfiguration().Configuration())
	if len(now) == 0 || slices.Equal(now, in.members) {
		return
	}
	if err := in.g.folder.WriteMembers(now); err != nil {
		in.g.cfg.Log.Warn("cannot write down who the members are", "err", err)
		return
	}
	in.members = now
}

func (in *instance) lostIncoming() {
	select {
	case in.suspect <- struct{}{}:
	default:
	}
}

func (in *instance) String() string { return fmt.Sprintf("raft group %s", in.g.cfg.Name) }
