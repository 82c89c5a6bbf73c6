package resources

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve runs a group of one member, which keeps its log in dir.
func serve(t *testing.T, dir string) (*Resources, func()) {
	t.Helper()
	r := New(slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	g, err := group.Open(group.Config{Name: "monitor", Dir: dir, LocalID: "a", LocalAddr: addr, Listener: l, Machine: r,
		SegmentBytes: 1 << 20,
		Bootstrap:    []group.Server{{ID: "a", Address: addr, Voter: true}},
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r.Serve(g)
	polltest.Until(t, g.LeaseHeld, "the group has a leader")
	return r, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func put(typ string, o monitor.Object) objects.Op {
	namespace, name := o.Key()
	return objects.Op{Verb: objects.Put, Type: typ, Namespace: namespace, Name: name, Encoded: tagproto.Append(nil, o)}
}

func TestWriteAndDerive(t *testing.T) {
	dir := t.TempDir()
	r, stop := serve(t, dir)
	changed := r.Changed()
	meta := func(name string) monitor.Meta { return monitor.Meta{Name: name, Namespace: "default"} }
	err := r.Write(t.Context(), put("namespaces", &monitor.Namespace{Name: "default"}),
		put("silenced", &monitor.Silenced{Meta: meta("linux:*"), Subscription: "linux"}),
		put("roles", &monitor.Role{Meta: meta("r"),
			Rules: []monitor.Rule{{Verbs: []string{"get"}, Resources: []string{"checks"}}}}),
		put("rolebindings", &monitor.RoleBinding{Meta: meta("b"), RoleRef: monitor.RoleRef{Type: "Role", Name: "r"},
			Subjects: []monitor.BoundTo{{Type: "User", Name: "ann"}}}))
	if err != nil {
		t.Fatal(err)
	}
	polltest.Get(t, changed, "who waits for a change hears of it")
	check := func(v *View) {
		t.Helper()
		if !v.Access().Allows(monitor.Caller{User: "ann"}, "get", "checks", "default", "") ||
			v.Access().Allows(monitor.Caller{User: "ann"}, "get", "hooks", "default", "") {
			t.Error("the role does not hold")
		}
		if n := len(v.Silences("default").Of(monitor.Subject{Check: "c", EntitySubscriptions: []string{"linux"}, Proxy: true},
			1)); n != 1 || v.Silences("other") != nil {
			t.Errorf("%d silences", n)
		}
	}
	before := r.View()
	check(before)
	if err := r.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: "silenced", Namespace: "default",
		Name: "linux:*"}); err != nil {
		t.Fatal(err)
	}
	check(before) // a view never changes
	if !r.View().Silences("default").Empty() || r.View().Access() != before.Access() {
		t.Error("what changed is made anew, and nothing else")
	}
	if err := r.Write(t.Context(), objects.Op{Verb: objects.Delete, Type: "silenced", Namespace: "default",
		Name: "linux:*"}); !errkind.Is(err, errkind.NotFound) {
		t.Error("a second time:", err)
	}
	want := r.View().State.Snapshot()
	stop()
	again, stop := serve(t, dir)
	defer stop()
	polltest.Until(t, func() bool { return bytes.Equal(again.View().State.Snapshot(), want) },
		"all is there after a restart")
}

func TestSnapshotAndRestore(t *testing.T) {
	a := New(slog.New(slog.DiscardHandler))
	a.ApplyBatch([][]byte{objects.AppendCommand(nil, []objects.Op{put("namespaces", &monitor.Namespace{Name: "n"}),
		put("silenced", &monitor.Silenced{Meta: monitor.Meta{Name: "*:c", Namespace: "n"}, Check: "c"})})})
	var b bytes.Buffer
	if _, err := a.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(b.Bytes())
	damaged[20] ^= 1
	to := New(slog.New(slog.DiscardHandler))
	if err := to.Restore(bytes.NewReader(damaged)); !errkind.Is(err, errkind.Corrupt) || to.View().Len() != 0 {
		t.Fatal(err)
	}
	if err := to.Restore(&b); err != nil || to.View().Silences("n").Empty() {
		t.Fatal(err)
	}
}

func TestCommandsThatCannotBeRead(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	out := r.ApplyBatch([][]byte{[]byte("rubbish"),
		objects.AppendCommand(nil, []objects.Op{put("namespaces", &monitor.Namespace{Name: "n"})})})
	if err, ok := out[0].(error); !ok || !errkind.Is(err, errkind.Corrupt) || out[1] != nil ||
		r.View().Get("namespaces", "", "n") == nil {
		t.Fatal(out)
	}
}

// What is over goes, and nothing else; who was changed meanwhile stays.
func TestReap(t *testing.T) {
	r, stop := serve(t, t.TempDir())
	defer stop()
	ops := []objects.Op{put("namespaces", &monitor.Namespace{Name: "n"})}
	silence := func(check string, end int64) {
		ops = append(ops, put("silenced", &monitor.Silenced{Meta: monitor.Meta{Name: "*:" + check, Namespace: "n"},
			Check: check, ExpireAt: end}))
	}
	silence("for-ever", 0)
	silence("later", 2000)
	for i := range reapMost + 10 {
		silence(fmt.Sprint("over-", i), 1000)
	}
	ops = append(ops, put("logins", &monitor.Login{ID: "old", User: "ann", Expires: 999}),
		put("logins", &monitor.Login{ID: "new", User: "ann", Expires: 1001}))
	if err := r.Write(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	if err := r.reap(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, typ := range []string{"logins", "silenced"} {
		r.View().List(typ, "", "", "", func(i *objects.Item) bool { left = append(left, i.Name); return true })
	}
	if got := strings.Join(left, " "); got != "new *:for-ever *:later" {
		t.Error(got)
	}
}
