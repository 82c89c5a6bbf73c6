package group

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// machine is a list of commands; each one's result is its position.
type machine struct {
	mu   sync.Mutex
	cmds []string
	hold chan struct{} // when not nil, a restore waits until it is closed
	held atomic.Bool   // one does
}

func (m *machine) ApplyBatch(cmds [][]byte) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]any, len(cmds))
	for i, c := range cmds {
		m.cmds = append(m.cmds, string(c))
		out[i] = len(m.cmds)
	}
	return out
}

func (m *machine) Snapshot() Snapshot { return machineSnapshot(m.list()) }

func (m *machine) list() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cmds[:len(m.cmds):len(m.cmds)]
}

func (m *machine) has(cmd string) bool {
	for _, c := range m.list() {
		if c == cmd {
			return true
		}
	}
	return false
}

type machineSnapshot []string

func (s machineSnapshot) WriteTo(w io.Writer) (int64, error) {
	n := int64(0)
	for _, c := range s {
		k, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(c))), c...))
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (m *machine) Restore(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var cmds []string
	for len(data) > 0 {
		if len(data) < 4 {
			return errors.New("short")
		}
		n := int(binary.LittleEndian.Uint32(data))
		if n > len(data)-4 {
			return errors.New("short")
		}
		cmds = append(cmds, string(data[4:4+n]))
		data = data[4+n:]
	}
	if m.hold != nil {
		m.held.Store(true)
		<-m.hold
	}
	m.mu.Lock()
	m.cmds = cmds
	m.mu.Unlock()
	return nil
}

// node is one member of a test cluster. It can be stopped, cut off and started again.
type node struct {
	*Group
	t       testing.TB
	id      string
	addr    string
	dir     string
	fs      vfs.FS
	machine *machine
	dead    atomic.Bool // nothing leaves it any more, as after kill -9
	silent  atomic.Bool // its connections stay open, and nothing leaves through them
	conns   sync.Map
	cancel  context.CancelFunc
	done    chan struct{}
	adjust  func(*Config)
	boot    []Server
	log     *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type countedConn struct {
	net.Conn
	n *node
}

// Write loses what a silent node, or one that is cut off, sends: its connections stay.
func (c countedConn) Write(p []byte) (int, error) {
	if c.n.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c countedConn) Close() error { c.n.conns.Delete(c.Conn); return c.Conn.Close() }

type countedListener struct {
	net.Listener
	n *node
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.n.conns.Store(c, true)
	if l.n.dead.Load() {
		_ = c.Close()
	}
	return countedConn{c, l.n}, nil
}

func (n *node) dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.dead.Load() {
		return nil, syscall.ENETDOWN
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	n.conns.Store(c, true)
	if n.dead.Load() { // killed meanwhile: kill may not have seen this one
		_ = c.Close()
		return nil, syscall.ENETDOWN
	}
	return countedConn{c, n}, nil
}

func (n *node) start() {
	n.t.Helper()
	if err := n.tryStart(); err != nil {
		n.t.Fatalf("start %s: %v", n.id, err)
	}
}

func (n *node) tryStart() error {
	var l net.Listener
	polltest.NoError(n.t, time.Minute, func() (err error) { // a connection of another process may have the port meanwhile
		l, err = net.Listen("tcp", n.addr)
		return err
	}, "%s to get its port", n.id)
	n.addr = l.Addr().String()
	n.dead.Store(false)
	n.machine = &machine{}
	cfg := Config{Name: "test", Dir: n.dir, FS: n.fs, LocalID: n.id, LocalAddr: n.addr, Listener: countedListener{l, n},
		Dial:    n.dial,
		Machine: n.machine, Bootstrap: n.boot, SegmentBytes: 1 << 20, Log: slog.New(slog.NewTextHandler(n.log, nil))}
	if n.adjust != nil {
		n.adjust(&cfg)
	}
	var err error
	if n.Group, err = Open(cfg); err != nil {
		l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan struct{})
	go func() { defer close(n.done); _ = n.Run(ctx) }()
	return nil
}

func (n *node) stop() {
	if n.cancel != nil {
		n.cancel()
		<-n.done
		n.cancel = nil
	}
}

// kill cuts the node off at once, as a killed process would be, and then cleans up.
func (n *node) kill() {
	n.dead.Store(true)
	n.cfg.Listener.Close()
	n.conns.Range(func(c, _ any) bool {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.(net.Conn).Close()
		return true
	})
}

func cluster(t testing.TB, size int, adjust func(i int, n *node)) []*node {
	t.Helper()
	var nodes []*node
	var boot []Server
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := &node{t: t, id: fmt.Sprintf("n%d", i), addr: l.Addr().String(), dir: t.TempDir(), fs: vfs.OS{},
			log: &syncBuffer{}}
		l.Close()
		nodes = append(nodes, n)
		boot = append(boot, Server{ID: n.id, Address: n.addr, Voter: true})
	}
	for i, n := range nodes {
		n.boot = boot
		if adjust != nil {
			adjust(i, n)
		}
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			n.stop()
		}
		if t.Failed() {
			for _, n := range nodes {
				t.Logf("log of %s:\n%s", n.id, n.log)
			}
		}
	})
	return nodes
}

func leader(t testing.TB, nodes []*node) *node {
	t.Helper()
	var found *node
	polltest.Until(t, func() bool {
		for _, n := range nodes {
			if !n.dead.Load() && n.Group != nil && n.LeaseHeld() {
				found = n
				return true
			}
		}
		return false
	}, "a leader with its lease")
	return found
}

func others(nodes []*node, but *node) []*node {
	var list []*node
	for _, n := range nodes {
		if n != but {
			list = append(list, n)
		}
	}
	return list
}

func propose(t testing.TB, n *node, cmd string) any {
	t.Helper()
	result, err := n.Propose(t.Context(), []byte(cmd))
	if err != nil {
		t.Fatalf("propose %q: %v", cmd, err)
	}
	return result
}

// insist proposes at whoever leads until one is acknowledged.
func insist(t testing.TB, nodes []*node, cmd string) {
	t.Helper()
	polltest.NoError(t, polltest.Deadline, func() error {
		err := error(errNoLeader)
		for _, n := range nodes {
			if !n.dead.Load() && n.Group != nil && n.IsLeader() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				_, err = n.Propose(ctx, []byte(cmd))
				cancel()
				if err == nil {
					return nil
				}
			}
		}
		return err
	}, "an acknowledged write")
}

func TestSingleVoterLeadsAtOnce(t *testing.T) {
	// An election timeout would outlast the test.
	nodes := cluster(t, 1, func(_ int, n *node) { n.adjust = func(c *Config) { c.unit = time.Hour } })
	n := nodes[0]
	leader(t, nodes)
	for i := range 20 {
		if got := propose(t, n, fmt.Sprint("cmd-", i)); got != i+1 {
			t.Fatalf("result %v, want %d", got, i+1)
		}
	}
	if err := n.VerifyLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	leader(t, nodes)
	if got := len(n.machine.list()); got != 20 {
		t.Fatalf("after a restart the machine has %d commands", got)
	}
	n.stop() // the log now ends with entries that no machine sees
	n.start()
	leader(t, nodes)
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
	defer cancel()
	if err := n.VerifyLeader(ctx); err != nil {
		t.Fatalf("verify after a second restart: %v", err)
	}
	if !strings.Contains(n.log.String(), "entries_to_replay=") {
		t.Fatal("the restart does not say what it replays")
	}
}

func TestInMemory(t *testing.T) {
	nodes := cluster(t, 1, func(_ int, n *node) { n.adjust = func(c *Config) { c.InMemory = true; c.Dir = "" } })
	n := leader(t, nodes)
	propose(t, n, "a")
	if err := n.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := n.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	propose(t, n, "b")
	bad := bytes.Clone(saved.Bytes())
	bad[len(bad)/2] ^= 4
	if err := n.Restore(t.Context(), bytes.NewReader(bad)); !errkind.Is(err, errkind.Invalid) {
		t.Fatalf("a damaged upload: %v", err)
	}
	if !n.machine.has("b") {
		t.Fatal("the refused upload changed the state")
	}
	if err := n.Restore(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	if got := n.machine.list(); len(got) != 1 || got[0] != "a" {
		t.Fatalf("restored %v", got)
	}
	propose(t, n, "c")
}

func TestManyProposersShareEntries(t *testing.T) {
	nodes := cluster(t, 1, nil)
	n := leader(t, nodes)
	before := n.current.Load().stores.Disk.Stats()
	const workers, each = 32, 100
	var wg sync.WaitGroup
	var wrong atomic.Int32
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				cmd := fmt.Sprintf("%d-%d", w, i)
				at, err := n.Propose(t.Context(), []byte(cmd))
				if err != nil || n.machine.list()[at.(int)-1] != cmd {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	after := n.current.Load().stores.Disk.Stats()
	if wrong.Load() != 0 || len(n.machine.list()) != workers*each {
		t.Fatalf("%d wrong answers, %d commands", wrong.Load(), len(n.machine.list()))
	}
	if entries := after.Entries - before.Entries; entries > workers*each/2 {
		t.Fatalf("%d entries for %d commands: nothing was merged", entries, workers*each)
	} else {
		t.Logf("%d commands, %d entries, %d fsyncs", workers*each, entries, after.Fsyncs-before.Fsyncs)
	}
}

func TestQueueSheds(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.OS{})
	nodes := cluster(t, 1, func(_ int, n *node) {
		n.fs = faulty
		n.adjust = func(c *Config) { c.QueueCount, c.QueueWait, c.MaxCommandBytes = 4, 20*time.Millisecond, 1000 }
	})
	n := leader(t, nodes)
	if _, err := n.Propose(t.Context(), make([]byte, 1001)); !errkind.Is(err, errkind.TooLarge) {
		t.Fatalf("too large: %v", err)
	}
	faulty.Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Glob: "*.seg", Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	kinds := make(chan errkind.Kind, 64)
	for i := range 12 {
		wg.Go(func() {
			if _, err := n.Propose(ctx, fmt.Appendf(nil, "x%d", i)); err != nil {
				kinds <- errkind.Of(err)
			}
		})
	}
	if kind := polltest.Get(t, kinds, "a shed proposal"); kind != errkind.Overloaded {
		t.Fatalf("a full queue gave %s", kind)
	}
	cancel()
	faulty.Lift("hang")
	wg.Wait()
	close(kinds)
	seen := map[errkind.Kind]int{}
	for kind := range kinds {
		seen[kind]++
	}
	t.Logf("%v", seen)
}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	propose(t, l, "before")
	for _, f := range others(nodes, l) {
		if _, err := f.Propose(t.Context(), []byte("x")); !errkind.Is(err, errkind.NotLeader) &&
			!errkind.Is(err, errkind.Unavailable) {
			t.Fatalf("a follower takes proposals: %v", err)
		}
	}
	began := time.Now()
	l.kill()
	insist(t, nodes, "after")
	t.Logf("kill to first acknowledged write: %s", time.Since(began))
	l.stop()
	l.start()
	polltest.Until(t, func() bool { return l.machine.has("after") && l.machine.has("before") },
		"the killed member to catch up")
	if l.LeaseHeld() {
		t.Fatal("it leads again without an election")
	}
}

func TestOldLeaderLosesItsLease(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	l.kill() // its own view: nobody answers any more
	polltest.Until(t, func() bool { return !l.LeaseHeld() }, "the lease to end")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := l.VerifyLeader(ctx); err == nil {
		t.Fatal("a leader that nobody hears was verified")
	}
	next := leader(t, others(nodes, l))
	if l.LeaseHeld() && next.LeaseHeld() {
		t.Fatal("two leases")
	}
}

func TestPlannedStopHandsOver(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	propose(t, l, "a")
	began := time.Now()
	l.stop()
	rest := others(nodes, l)
	insist(t, rest, "b")
	t.Logf("stop to next write: %s", time.Since(began))
	if !strings.Contains(rest[0].log.String()+rest[1].log.String(), "log verified") {
		t.Fatal("no log")
	}
	l.Group = nil
}

func TestStalledLeaderDisk(t *testing.T) {
	t.Parallel()
	var faults []*vfs.Faulty
	nodes := cluster(t, 3, func(_ int, n *node) {
		f := vfs.NewFaulty(vfs.OS{})
		n.fs = f
		n.adjust = func(c *Config) { c.unit = 500 * time.Millisecond }
		faults = append(faults, f)
	})
	l := leader(t, nodes)
	propose(t, l, "before")
	disk := l.fs.(*vfs.Faulty)
	disk.Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Glob: "*.seg", Stall: true})
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
	if _, err := l.Propose(ctx, []byte("hangs")); !errkind.Is(err, errkind.Unknown) {
		t.Fatalf("a hanging proposal: %v", err)
	}
	cancel()
	insist(t, others(nodes, l), "meanwhile")
	t.Logf("stall to first acknowledged write: %s", time.Since(began))
	if l.IsLeader() || l.LeaseHeld() {
		polltest.Until(t, func() bool { return !l.IsLeader() && !l.LeaseHeld() },
			"the stalled leader to know that it is deposed")
	}
	polltest.Until(t, func() bool { return l.current.Load().links.streams.shut.Load() }, "the transport to be shut")
	insist(t, others(nodes, l), "later")
	disk.LiftAll()
	polltest.Until(t, func() bool { return l.machine.has("meanwhile") && l.machine.has("later") },
		"the stalled member to catch up without a restart")
	polltest.Until(t, func() bool { return !l.current.Load().links.streams.shut.Load() }, "its transport to be open again")
}

// TestEveryDiskStalls: when no other member could take over, the leader leads on once the disks answer again, also when
// it is the only one.
func TestEveryDiskStalls(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(strconv.Itoa(members), func(t *testing.T) {
			t.Parallel()
			nodes := cluster(t, members, func(_ int, n *node) {
				n.fs = vfs.NewFaulty(vfs.OS{})
				n.adjust = func(c *Config) { c.unit = 500 * time.Millisecond }
			})
			l := leader(t, nodes)
			propose(t, l, "before")
			for _, n := range nodes {
				n.fs.(*vfs.Faulty).Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Glob: "*.seg", Stall: true})
			}
			ctx, cancel := context.WithTimeout(t.Context(), polltest.Deadline)
			if _, err := l.Propose(ctx, []byte("hangs")); err == nil {
				t.Fatal("a proposal was acknowledged by disks that hang")
			}
			cancel()
			polltest.Until(t, func() bool { return l.current.Load().links.streams.shut.Load() }, "the transport to be shut")
			for _, n := range nodes {
				n.fs.(*vfs.Faulty).LiftAll()
			}
			insist(t, nodes, "after")
		})
	}
}

// TestIdleLeaderWithStalledDisk: nobody writes, and still the leadership goes to a member whose disk answers.
func TestIdleLeaderWithStalledDisk(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, func(_ int, n *node) {
		n.fs = vfs.NewFaulty(vfs.OS{})
		n.adjust = func(c *Config) { c.unit = 500 * time.Millisecond }
	})
	l := leader(t, nodes)
	l.fs.(*vfs.Faulty).Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync | vfs.OpWrite, Stall: true})
	leader(t, others(nodes, l))
	l.fs.(*vfs.Faulty).LiftAll()
}

func TestStalledFollowerDisk(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, func(_ int, n *node) { n.fs = vfs.NewFaulty(vfs.OS{}) })
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	f.fs.(*vfs.Faulty).Inject(vfs.Rule{Name: "hang", Ops: vfs.OpSync, Glob: "*.seg", Stall: true})
	for i := range 10 {
		propose(t, l, fmt.Sprint("cmd-", i))
	}
	f.fs.(*vfs.Faulty).LiftAll()
	polltest.Until(t, func() bool { return f.machine.has("cmd-9") }, "the follower to catch up")
}

func TestFullDiskHealsByItself(t *testing.T) {
	t.Parallel()
	faulty := vfs.NewFaulty(vfs.OS{})
	nodes := cluster(t, 1, func(_ int, n *node) { n.fs = faulty })
	n := leader(t, nodes)
	propose(t, n, "a")
	faulty.Inject(vfs.Rule{Name: "full", Ops: vfs.OpWrite, Glob: "*.seg", Err: syscall.ENOSPC})
	if _, err := n.Propose(t.Context(), []byte("b")); err == nil {
		t.Fatal("written to a full disk")
	}
	polltest.Until(t, func() bool { _, err := n.Propose(t.Context(), []byte("x")); return err != nil },
		"writes to be refused")
	if !n.machine.has("a") {
		t.Fatal("reads stopped")
	}
	faulty.LiftAll()
	insist(t, nodes, "c")
	if list := n.machine.list(); list[0] != "a" || list[len(list)-1] != "c" {
		t.Fatalf("state after healing: %v", list)
	}
	n.stop()
	n.start()
	leader(t, nodes)
	if !n.machine.has("a") || !n.machine.has("c") {
		t.Fatal("acknowledged writes are gone")
	}
}

func TestWipedFollowerGetsSnapshot(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, func(_ int, n *node) { n.adjust = func(c *Config) { c.TrailingLogs = 1 } })
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	f.stop()
	for i := range 50 {
		propose(t, l, fmt.Sprint("cmd-", i))
	}
	if err := l.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	propose(t, l, "last")
	f.start()
	polltest.Until(t, func() bool { return f.machine.has("last") && len(f.machine.list()) == 51 },
		"the snapshot to be installed")
	f.stop()
	f.start()
	polltest.Until(t, func() bool { return len(f.machine.list()) == 51 }, "the installed snapshot to survive a restart")
}

// TestDamagedFollowerRebuildsItself flips a bit in a stopped follower's log.
func TestDamagedFollowerRebuildsItself(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	for i := range 20 {
		propose(t, l, fmt.Sprint("cmd-", i))
	}
	polltest.Until(t, func() bool { return f.machine.has("cmd-19") }, "the follower to have all")
	f.stop()
	segs, err := filepath.Glob(filepath.Join(f.dir, "log", "*.seg"))
	if err != nil || len(segs) == 0 {
		t.Fatal(segs, err)
	}
	data, err := os.ReadFile(segs[0])
	if err != nil {
		t.Fatal(err)
	}
	data[300] ^= 1
	if err := os.WriteFile(segs[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start()
	if m := f.current.Load(); m != nil && m.links.mute == nil {
		t.Fatal("it votes with a damaged log")
	}
	polltest.Until(t, func() bool { return f.machine.has("cmd-19") }, "the rebuilt log")
	insist(t, nodes, "after")
	polltest.Until(t, func() bool {
		_, err := os.Stat(filepath.Join(f.dir, raftdisk.RebuildName))
		return f.machine.has("after") && os.IsNotExist(err)
	}, "the rebuilt member to vote again")
	aside, _ := filepath.Glob(filepath.Join(f.dir, "log.damaged-*"))
	if len(aside) != 1 || !strings.Contains(f.log.String(), "offset=") {
		t.Fatalf("aside: %v; log: %s", aside, f.log)
	}
	// It counts as a full member: with it and one other the group goes on.
	l.kill()
	insist(t, others(nodes, l), "without the old leader")
	l.stop()
}

func TestDamagedSingleServerRefusesToGuess(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 1, nil)
	n := leader(t, nodes)
	propose(t, n, "a")
	n.stop()
	segs, _ := filepath.Glob(filepath.Join(n.dir, "log", "*.seg"))
	data, err := os.ReadFile(segs[0])
	if err != nil {
		t.Fatal(err)
	}
	data[60] ^= 1
	if err := os.WriteFile(segs[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.tryStart(); !errkind.Is(err, errkind.Corrupt) || !strings.Contains(err.Error(), segs[0]) {
		t.Fatalf("started with a damaged log: %v", err)
	}
	n.Group = nil
}

// TestFormerMemberIsNotImpersonated: who lost everything and comes back as somebody else, at the old address, must
// neither vote nor acknowledge for the member that it was: what that one acknowledged is gone.
func TestFormerMemberIsNotImpersonated(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	propose(t, l, "a")
	rest := others(nodes, l)
	victim, third := rest[0], rest[1]
	victim.stop()
	third.stop()
	victim.id, victim.dir, victim.boot = "somebody else", t.TempDir(), nil
	victim.start()
	// Alone with an impostor the leader has no quorum.
	polltest.Until(t, func() bool { return !l.LeaseHeld() }, "the leader to be without a quorum")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := l.Propose(ctx, []byte("b")); err == nil {
		t.Error("a write was acknowledged by a member that is not of the group")
	}
	if victim.machine.has("a") {
		t.Error("it took the log of the member that it was")
	}
	third.start()
	insist(t, []*node{l, third}, "c")
}

func TestPeersJSON(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	propose(t, l, "a")
	for _, n := range nodes {
		n.stop()
	}
	peers := fmt.Sprintf(`[{"id":%q,"address":%q}]`, l.id, l.addr)
	if err := os.WriteFile(filepath.Join(l.dir, peersName), []byte(peers), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	insist(t, []*node{l}, "b")
	if !l.machine.has("a") || !strings.Contains(l.log.String(), "recovering with the members of peers.json") {
		t.Fatalf("recovered: %v", l.machine.list())
	}
	if list, _, err := l.Configuration(); err != nil || len(list) != 1 {
		t.Fatalf("members %v %v", list, err)
	}
}

func FuzzSplitEntry(f *testing.F) {
	f.Add(appendCommand(appendCommand(beginEntry(nil, 2), []byte("a")), nil))
	f.Add([]byte{entryVersion, 200, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		cmds, err := splitEntry(nil, data)
		if err != nil {
			return
		}
		again := beginEntry(nil, len(cmds))
		for _, c := range cmds {
			again = appendCommand(again, c)
		}
		back, err := splitEntry(nil, again)
		if err != nil || len(back) != len(cmds) {
			t.Fatalf("%v %d %d", err, len(back), len(cmds))
		}
	})
}

func FuzzSnapshotStream(f *testing.F) {
	var good bytes.Buffer
	if err := snapshot.Write(&good, machineSnapshot{"a", "bb"}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &machine{}
		if err := snapshot.Read(bytes.NewReader(data), m.Restore); err == nil && !bytes.Equal(data, good.Bytes()) {
			if snapshot.Verify(bytes.NewReader(data)) != nil {
				t.Fatal("restored a stream that does not verify")
			}
		}
	})
}

func TestEveryFlippedSnapshotBitIsNoticed(t *testing.T) {
	var good bytes.Buffer
	if err := snapshot.Write(&good, machineSnapshot{"one", "two", strings.Repeat("three", 100)}); err != nil {
		t.Fatal(err)
	}
	for i := range good.Len() * 8 {
		data := bytes.Clone(good.Bytes())
		data[i/8] ^= 1 << (i % 8)
		m := &machine{cmds: []string{"old"}}
		if err := snapshot.Read(bytes.NewReader(data), m.Restore); err == nil {
			t.Fatalf("bit %d went unnoticed", i)
		}
		if len(m.cmds) != 1 || m.cmds[0] != "old" {
			t.Fatalf("bit %d: the machine changed before the end was checked", i)
		}
	}
	for n := range good.Len() {
		if snapshot.Verify(bytes.NewReader(good.Bytes()[:n])) == nil {
			t.Fatalf("a stream cut at %d verifies", n)
		}
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, workers := range []int{1, 16, 128} {
		b.Run(fmt.Sprint("goroutines=", workers), func(b *testing.B) {
			nodes := cluster(b, 1, func(_ int, n *node) {
				n.adjust = func(c *Config) { c.SegmentBytes = 0; c.Machine = nullMachine{} }
			})
			n := leader(b, nodes)
			cmd := make([]byte, 256)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := n.Propose(context.Background(), cmd); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "proposals/s")
			b.StopTimer()
			nodes[0].stop()
		})
	}
}

type nullMachine struct{}

func (nullMachine) ApplyBatch(cmds [][]byte) []any { return make([]any, len(cmds)) }
func (nullMachine) Snapshot() Snapshot             { return machineSnapshot(nil) }
func (nullMachine) Restore(r io.Reader) error      { _, err := io.Copy(io.Discard, r); return err }

// TestDamageWhileRunning flips a bit under a running follower and makes Raft's own read meet it.
func TestDamageWhileRunning(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	for i := range 20 {
		insist(t, nodes, fmt.Sprint("cmd-", i)) // on a slow machine leadership may change meanwhile
	}
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	polltest.Until(t, func() bool { return f.machine.has("cmd-19") }, "the follower to have all")
	segs, err := filepath.Glob(filepath.Join(f.dir, "log", "*.seg"))
	if err != nil || len(segs) != 1 {
		t.Fatal(segs, err)
	}
	file, err := os.OpenFile(segs[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{0xff}, 400); err != nil {
		t.Fatal(err)
	}
	before := f.current.Load()
	ended := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { ended <- returned }()
		for i := uint64(1); i < 20; i++ {
			var entry raft.Log
			_ = before.guard.GetLog(i, &entry) // the damaged one ends this goroutine
		}
		returned = true
	}()
	if polltest.Get(t, ended, "the reading goroutine to end") {
		t.Fatal("a damaged record was read")
	}
	polltest.Until(t, func() bool { in := f.current.Load(); return in != nil && in != before }, "the group to begin anew")
	insist(t, nodes, "after")
	polltest.Until(t, func() bool {
		_, err := os.Stat(filepath.Join(f.dir, raftdisk.RebuildName))
		return f.machine.has("after") && os.IsNotExist(err)
	}, "the rebuilt member to vote again")
	for i := range 20 {
		if cmd := fmt.Sprint("cmd-", i); !f.machine.has(cmd) {
			t.Errorf("the rebuilt member's state lacks %q", cmd)
		}
	}
	polltest.Until(t, func() bool { return slices.Equal(f.machine.list(), l.machine.list()) },
		"the rebuilt member's state to be the others'")
	if !strings.Contains(f.log.String(), "moved aside") {
		t.Fatal("the log does not say what happened")
	}
}
