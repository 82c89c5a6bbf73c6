package member

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vivaldi"
)

// runPool runs a Pool until the test ends or stop is called.
func runPool(t *testing.T, cfg Config) (p *Pool, stop func()) {
	t.Helper()
	if cfg.Bind == "" {
		cfg.Bind = "127.0.0.1:0"
	}
	cfg.Profile = Local
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	polltest.Get(t, p.Ready(), "the network of %s to open", cfg.Name)
	return p, stop
}

func addrOf(p *Pool) string {
	ip, port := p.Addr()
	return hostPort(Member{Addr: ip, Port: port})
}

// runPools runs pools with the names a, b, ... that have all joined.
func runPools(t *testing.T, n int, cfg func(i int) Config) (pools []*Pool, stops []func()) {
	t.Helper()
	for i := range n {
		c := cfg(i)
		c.Name = string(rune('a' + i))
		p, stop := runPool(t, c)
		pools, stops = append(pools, p), append(stops, stop)
		if i > 0 {
			if got, err := p.Join(t.Context(), []string{addrOf(pools[0])}); err != nil || got != 1 {
				t.Fatalf("join: %d, %v", got, err)
			}
		}
	}
	for _, p := range pools {
		polltest.Until(t, func() bool { return strings.Count(statuses(p), "alive") == n }, "%s to see %d members",
			p.cfg.Name, n)
	}
	return pools, stops
}

func statuses(p *Pool) string {
	var b strings.Builder
	for _, m := range p.Members(ActShow) {
		fmt.Fprintf(&b, "%s=%s ", m.Name, m.Status)
	}
	return strings.TrimSpace(b.String())
}

func status(p *Pool, name string) Status {
	m, _ := p.Member(ActShow, name)
	return m.Status
}

func TestFiveMembersJoinFailLeaveAndReturn(t *testing.T) {
	t.Parallel()
	pools, stops := runPools(t, 5, func(i int) Config {
		return Config{Tags: map[string]string{"role": "consul", "n": fmt.Sprint(i)},
			ReconnectInterval: 200 * time.Millisecond}
	})
	m, ok := pools[0].Member(ActShow, "d")
	if !ok || m.Tags["n"] != "3" || m.Tags["role"] != "consul" || m.Addr != "127.0.0.1" || m.ProtocolCur == 0 {
		t.Errorf("member d: %+v", m)
	}
	if err := pools[4].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	stops[4]()
	dead := addrOf(pools[3])
	stops[3]()
	for _, p := range pools[:3] {
		polltest.Until(t, func() bool { return statuses(p) == "a=alive b=alive c=alive d=failed e=left" },
			"%s to see d fail and e leave", p.cfg.Name)
	}
	back, stopBack := runPool(t, Config{Name: "d", Bind: dead, Tags: map[string]string{"n": "33"}})
	// Nobody tells it where the others are: they try the failed member again.
	for _, p := range append(pools[:3:3], back) {
		polltest.Until(t, func() bool { return strings.HasPrefix(statuses(p), "a=alive b=alive c=alive d=alive") },
			"%s to see d again", p.cfg.Name)
	}
	if m, _ := pools[0].Member(ActShow, "d"); m.Tags["n"] != "33" {
		t.Errorf("tags after the restart: %v", m.Tags)
	}
	// A newcomer hears of the one that left too.
	polltest.Until(t, func() bool { return status(back, "e") == Left }, "the newcomer to hear of e")
	stopBack()
}

func TestForceLeaveMovesFailedMembersEverywhere(t *testing.T) {
	t.Parallel()
	pools, stops := runPools(t, 3, func(int) Config { return Config{} })
	if err := pools[0].ForceLeave("c", false); err != nil {
		t.Fatal(err)
	}
	if got := status(pools[0], "c"); got != Alive {
		t.Errorf("a living member is %s after a forced leave", got)
	}
	stops[2]()
	// The operator's word was given first: the failure makes it left.
	for _, p := range pools[:2] {
		polltest.Until(t, func() bool { return status(p, "c") == Left }, "%s to see c left", p.cfg.Name)
	}
	if err := pools[1].ForceLeave("c", true); err != nil {
		t.Fatal(err)
	}
	for _, p := range pools[:2] {
		polltest.Until(t, func() bool { return status(p, "c") == 0 }, "%s to forget c", p.cfg.Name)
	}
	if err := pools[0].ForceLeave("nobody", false); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("unknown member: %v", err)
	}
}

func newKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func TestKeysRotateOverThePool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint(i), "local.keyring") }
	old, next := newKey(1), newKey(2)
	var pools []*Pool
	carry := func(ctx context.Context, to Member, req []byte) ([]byte, error) {
		i := slices.IndexFunc(pools, func(p *Pool) bool { return p.cfg.Name == to.Name })
		if i < 0 {
			return nil, errkind.New(errkind.Denied, "it has no certificate")
		}
		return pools[i].AnswerKeys(ctx, req)
	}
	all, stops := runPools(t, 3, func(i int) Config { return Config{Encrypt: old, KeyringFile: file(i), Carry: carry} })
	pools = all
	ctx := t.Context()
	want := func(a KeyAnswer, err error, keys, primary map[string]int) {
		t.Helper()
		if err != nil || fmt.Sprint(a.Keys) != fmt.Sprint(keys) || fmt.Sprint(a.PrimaryKeys) != fmt.Sprint(primary) ||
			a.NumNodes != 3 || a.NumResp != 3 {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	type counts = map[string]int
	a, err := pools[1].InstallKey(ctx, next)
	want(a, err, counts{old: 3, next: 3}, counts{old: 3})
	a, err = pools[2].UseKey(ctx, next)
	want(a, err, counts{old: 3, next: 3}, counts{next: 3})
	if a, err = pools[0].RemoveKey(ctx, next); err == nil || a.NumErr != 3 {
		t.Errorf("removing the primary key: %+v, %v", a, err)
	}
	a, err = pools[0].RemoveKey(ctx, old)
	want(a, err, counts{next: 3}, counts{next: 3})
	a, err = pools[0].ListKeys(ctx)
	want(a, err, counts{next: 3}, counts{next: 3})
	if _, err := pools[0].UseKey(ctx, newKey(9)); err == nil {
		t.Error("using a key that nobody has")
	}
	if _, err := pools[0].InstallKey(ctx, "c2hvcnQ="); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("installing a short key: %v", err)
	}
	info, err := os.Stat(file(0))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("keyring file: %v %v", info, err)
	}
	// Who is there by gossip alone is asked, and gets no key.
	pools = all[:2]
	a, err = pools[0].InstallKey(ctx, old)
	if !errkind.Is(err, errkind.Unavailable) || a.NumErr != 1 || a.Messages["c"] != "it has no certificate" {
		t.Errorf("with a member that is not reached: %+v, %v", a, err)
	}
	// The file, not the configured key, is what counts after a restart.
	stops[2]()
	p, _ := runPool(t, Config{Name: "c2", Encrypt: old, KeyringFile: file(2)})
	if _, err := p.Join(ctx, []string{addrOf(pools[0])}); err != nil {
		t.Error(err)
	}
}

func TestEncryptedAndPlainRefuseEachOther(t *testing.T) {
	t.Parallel()
	plain, _ := runPool(t, Config{Name: "plain"})
	secret, _ := runPool(t, Config{Name: "secret", Encrypt: newKey(1)})
	other, _ := runPool(t, Config{Name: "other", Encrypt: newKey(2)})
	for _, pair := range [][2]*Pool{{plain, secret}, {secret, plain}, {secret, other}} {
		if _, err := pair[0].Join(t.Context(), []string{addrOf(pair[1])}); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("%s joined %s: %v", pair[0].cfg.Name, pair[1].cfg.Name, err)
		}
	}
	for _, p := range []*Pool{plain, secret, other} {
		if len(p.Members(ActShow)) != 1 {
			t.Errorf("%s sees %s", p.cfg.Name, statuses(p))
		}
	}
	if _, err := plain.ListKeys(t.Context()); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("keys of a plain pool: %v", err)
	}
	if _, err := plain.LocalKeys(); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("local keys of a plain pool: %v", err)
	}
}

func TestTagsChangeReachesOthersAndWakesThem(t *testing.T) {
	t.Parallel()
	pools, _ := runPools(t, 2, func(int) Config { return Config{} })
	changed := pools[1].Changes()
	if err := pools[0].SetTags(t.Context(), map[string]string{"acls": "1"}); err != nil {
		t.Fatal(err)
	}
	polltest.Get(t, changed, "a change")
	polltest.Until(t, func() bool { m, _ := pools[1].members.get("a"); return m.Tags["acls"] == "1" }, "the tags")
	if err := pools[0].SetTags(t.Context(), map[string]string{"long": strings.Repeat("x", 600)}); !errkind.Is(err,
		errkind.TooLarge) {
		t.Errorf("tags over the limit: %v", err)
	}
}

func TestAcceptKeepsOthersOut(t *testing.T) {
	t.Parallel()
	accept := func(m Member) error {
		if m.Tags["dc"] != "dc1" {
			return errors.New("of another datacenter")
		}
		return nil
	}
	here, _ := runPool(t, Config{Name: "here", Tags: map[string]string{"dc": "dc1"}, Accept: accept})
	there, _ := runPool(t, Config{Name: "there", Tags: map[string]string{"dc": "dc2"}})
	if _, err := here.Join(t.Context(), []string{addrOf(there)}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("joining a stranger: %v", err)
	}
	if got := statuses(here); got != "here=alive" {
		t.Errorf("here sees %s", got)
	}
}

func TestMembersOfTheLastRunAreJoinedAgain(t *testing.T) {
	t.Parallel()
	first, _ := runPool(t, Config{Name: "first"})
	snapshot := filepath.Join(t.TempDir(), "gossip.snapshot")
	p, stop := runPool(t, Config{Name: "again", SnapshotFile: snapshot})
	if _, err := p.Join(t.Context(), []string{addrOf(first)}); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return len(p.Members(ActShow)) == 2 }, "two members")
	addr := addrOf(p)
	stop()
	p, stop = runPool(t, Config{Name: "again", Bind: addr, SnapshotFile: snapshot})
	polltest.Until(t, func() bool { return status(p, "first") == Alive }, "the old member to be found")
	if err := p.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	b, err := os.ReadFile(snapshot)
	if err != nil || len(parseSnapshot(b)) != 0 {
		t.Errorf("snapshot after a leave: %q, %v", b, err)
	}
}

// TestWhatWasNotToldIsSaidAgain: a word that the queue lost is said again within the limit, and not beyond it.
func TestWhatWasNotToldIsSaidAgain(t *testing.T) {
	lost := errors.New("timeout waiting for update broadcast")
	for _, c := range []struct {
		limit       time.Duration
		losses, say int
		told        bool
	}{{5 * time.Second, 0, 1, true}, {5 * time.Second, 2, 3, true}, {5 * time.Second, 9, 5, false},
		{300 * time.Millisecond, 9, 1, false}, {0, 0, 1, true}} {
		said, waited := 0, time.Duration(0)
		err := tell(c.limit, func(d time.Duration) error {
			if said++; said <= c.losses {
				waited += d
				return lost
			}
			return nil
		})
		if said != c.say || (err == nil) != c.told || waited > c.limit {
			t.Errorf("%+v: said %d times, %v, after %v", c, said, err, waited)
		}
	}
}

// TestDeclaredTagsAreInTheFirstWord: who hears of a member for the first time has its tags, also those that were added
// after it was made.
func TestDeclaredTagsAreInTheFirstWord(t *testing.T) {
	p, err := New(Config{Name: "a", Bind: "127.0.0.1:0", Tags: map[string]string{"dc": "dc1"}, Profile: Local})
	if err != nil {
		t.Fatal(err)
	}
	if err := Declare(p, map[string]string{"dc": "dc1", "usage": "1"}); err != nil {
		t.Fatal(err)
	}
	_, tags, err := decodeMeta(delegate{p}.NodeMeta(metaMaxBytes))
	if err != nil || tags["usage"] != "1" || tags["dc"] != "dc1" {
		t.Errorf("%v %v", tags, err)
	}
}

func TestJoinRetryGoesOnUntilSomebodyAnswers(t *testing.T) {
	t.Parallel()
	p, _ := runPool(t, Config{Name: "p"})
	late, stopLate := runPool(t, Config{Name: "late"})
	addr := addrOf(late)
	stopLate()
	if err := p.JoinRetry(t.Context(), Known(addr), time.Millisecond, 2); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("after two attempts: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.JoinRetry(t.Context(), Known(addr, "not.a.name.invalid"), 10*time.Millisecond, 0) }()
	runPool(t, Config{Name: "late", Bind: addr})
	if err := polltest.Get(t, done, "the join"); err != nil {
		t.Error(err)
	}
	if n, err := p.Join(t.Context(), []string{addrOf(p)}); n != 1 || err != nil {
		t.Errorf("a first server that lists itself: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.JoinRetry(ctx, Known("127.0.0.1:1"), time.Hour, 0); err == nil {
		t.Error("JoinRetry succeeded after its context ended")
	}
}

// What cannot be found matters when nobody else answers.
func TestJoinFound(t *testing.T) {
	t.Parallel()
	p, _ := runPool(t, Config{Name: "p"})
	other, _ := runPool(t, Config{Name: "other"})
	missed := errors.New("a cloud does not answer")
	for _, c := range []struct {
		addrs []string
		fails bool
	}{{[]string{addrOf(other)}, false}, {nil, true}, {[]string{"127.0.0.1:1"}, true}} {
		find := func(context.Context) ([]string, error) { return c.addrs, missed }
		n, err := p.JoinFound(t.Context(), find)
		if c.fails != errors.Is(err, missed) || c.fails != (n == 0) {
			t.Errorf("%q found: %d answered, %v", c.addrs, n, err)
		}
	}
}

func TestNameConflictIsReported(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	a, _ := runPool(t, Config{Name: "same", Log: slog.New(slog.NewTextHandler(&log, nil))})
	b, _ := runPool(t, Config{Name: "same"})
	// Refused or not: what counts is that the operator is told.
	_, _ = b.Join(t.Context(), []string{addrOf(a)})
	polltest.Until(t, func() bool { return strings.Contains(log.String(), "another member uses this member's name") },
		"the conflict to be logged")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestFaultHookCutsGossip(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	pools, _ := runPools(t, 2, func(i int) Config {
		c := Config{ReconnectInterval: 200 * time.Millisecond}
		if i == 1 {
			c.Faults = func(string, string) (time.Duration, error) {
				if cut.Load() {
					return 0, errors.New("cut")
				}
				return 0, nil
			}
		}
		return c
	})
	cut.Store(true)
	polltest.Until(t, func() bool { return status(pools[0], "b") == Failed }, "b to fail")
	cut.Store(false)
	for _, p := range pools {
		polltest.Until(t, func() bool { return statuses(p) == "a=alive b=alive" }, "%s to see both", p.cfg.Name)
	}
}

// A process may be told to end while it departs.
func TestLeaveDuringTheEndOfRunIsAnErrorAtWorst(t *testing.T) {
	t.Parallel()
	for range 30 {
		var network Network
		p, stop := runPool(t, Config{Name: "a", Network: &network})
		done := make(chan error, 1)
		go func() { done <- p.Leave(t.Context()) }()
		stop()
		if err := polltest.Get(t, done, "the leave"); err != nil && !errors.Is(err, errStopped) {
			t.Errorf("leave: %v", err)
		}
		if err := p.Leave(t.Context()); !errors.Is(err, errStopped) {
			t.Errorf("leave after the end: %v", err)
		}
	}
}

func TestMemoryNetwork(t *testing.T) {
	t.Parallel()
	var network Network
	pools, _ := runPools(t, 3, func(int) Config { return Config{Network: &network} })
	if err := pools[2].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return status(pools[0], "c") == Left }, "c to leave")
}

func TestWrongConfigIsNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"name is empty":                 {},
		"port":                          {Name: "a", Bind: "127.0.0.1:x"},
		"not an IP":                     {Name: "a", Advertise: "host"},
		"gossip key is not base64":      {Name: "a", Encrypt: "!"},
		"must have 16, 24 or 32":        {Name: "a", Encrypt: "c2hvcnQ="},
		"tags take":                     {Name: "a", Tags: map[string]string{"x": strings.Repeat("y", 600)}},
		"name is longer than 128 bytes": {Name: strings.Repeat("n", 129)},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to contain %q", err, want)
		}
	}
}

// Probes tell members where they lie, and a member that is forgotten takes its place with it.
func TestCoordinatesComeFromProbes(t *testing.T) {
	pools, _ := runPools(t, 3, func(i int) Config {
		return Config{Name: fmt.Sprint("place", i), Bind: "127.0.0.1:0", Profile: Local}
	})
	polltest.Within(t, 60*time.Second, func() bool {
		for _, p := range pools {
			for _, m := range p.Members(ActShow) {
				if _, ok := p.CoordinateOf(m.Name); !ok && m.Name != p.cfg.Name {
					return false
				}
			}
		}
		return true
	}, "each member to have probed each")
	first, second := pools[0].Coordinate(), pools[1].Coordinate()
	if d := first.Distance(&second); first == vivaldi.New() || d <= 0 || d > 10*time.Second {
		t.Errorf("the distance on one machine is %v", d)
	}
	name := pools[1].cfg.Name
	pools[0].members.mu.Lock()
	pools[0].members.dropLocked(name)
	pools[0].members.mu.Unlock()
	if _, ok := pools[0].CoordinateOf(name); ok {
		t.Error("a member that was forgotten still lies somewhere")
	}
}

// An event reaches everybody once, also from two sides; what a member does not keep it still passes on.
func TestEventsReachAll(t *testing.T) {
	t.Parallel()
	pools, _ := runPools(t, 3, func(int) Config { return Config{} })
	first, err := pools[0].FireEvent(Event{ID: "1", Name: "deploy", Payload: []byte("v7"), NodeFilter: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		polltest.Until(t, func() bool { kept, _ := p.Events(); return len(kept) == 1 }, "%s to hear of the event", p.cfg.Name)
	}
	second, err := pools[2].FireEvent(Event{ID: "2", Name: "deploy"})
	if err != nil || second.LTime <= first.LTime {
		t.Fatalf("%+v after %+v: %v", second, first, err)
	}
	for _, p := range pools {
		polltest.Until(t, func() bool { kept, _ := p.Events(); return len(kept) == 2 }, "%s to hear of both events",
			p.cfg.Name)
		kept, _ := p.Events()
		if string(kept[0].Payload) != "v7" || kept[0].NodeFilter != "x" || kept[1].ID != "2" {
			t.Errorf("%s has %+v %+v", p.cfg.Name, kept[0], kept[1])
		}
	}
	for i := range keptEvents + 10 {
		pools[1].hearEvent(&Event{ID: fmt.Sprint("many", i), Name: "n"})
	}
	if kept, _ := pools[1].Events(); len(kept) != keptEvents || kept[len(kept)-1].ID != fmt.Sprint("many", keptEvents+9) {
		t.Errorf("%d events are kept", len(kept))
	}
	for _, e := range []Event{{Name: "no id"}, {ID: "3"}, {ID: "3", Name: "n", Payload: make([]byte, MaxEventBytes+1)},
		{ID: "3", Name: strings.Repeat("n", maxEventFields)}} {
		if _, err := pools[0].FireEvent(e); err == nil {
			t.Errorf("fired %.20q", e.Name)
		}
	}
}
