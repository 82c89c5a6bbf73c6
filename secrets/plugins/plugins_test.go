package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins/message"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables/tablestest"
)

// fakes runs processes that are none.
type fakes struct {
	mu    sync.Mutex
	wrong error // of a start
	list  []*fakeProcess
}

func (f *fakes) Check(*Entry) error { return nil }

func (f *fakes) Start(_ context.Context, l Launch) (Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrong != nil {
		return nil, f.wrong
	}
	p := &fakeProcess{launch: l, ended: make(chan struct{}), asked: make(chan *message.Request, 16)}
	f.list = append(f.list, p)
	return p, nil
}

func (f *fakes) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = err
}

func (f *fakes) started() (n int, last *fakeProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = len(f.list); n > 0 {
		last = f.list[n-1]
	}
	return n, last
}

type fakeProcess struct {
	launch Launch
	once   sync.Once
	ended  chan struct{}
	asked  chan *message.Request
	deaf   atomic.Bool // it does not say what it is either
	tidied atomic.Bool
}

func (p *fakeProcess) Broker() uint32         { return 7 }
func (p *fakeProcess) Ended() <-chan struct{} { return p.ended }
func (p *fakeProcess) Kill()                  { p.once.Do(func() { close(p.ended) }) }

func (p *fakeProcess) Call(ctx context.Context, method string, in, out any) error {
	switch method {
	case message.Cleanup:
		p.tidied.Store(true)
	case message.Type:
		if p.deaf.Load() {
			return p.waits(ctx)
		}
		out.(*message.TypeReply).Type = message.TypeSecret
	case message.SpecialPaths:
		out.(*message.PathsReply).Paths = &message.Paths{Unauthenticated: []string{"open"}, Root: []string{"root"}}
	case message.HandleRequest:
		return p.handle(ctx, in.(*message.RequestArgs).Request, out.(*message.RequestReply))
	}
	return nil
}

// waits is a call that is never answered.
func (p *fakeProcess) waits(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.ended:
	}
	return errkind.New(errkind.Unavailable, "no answer")
}

func (p *fakeProcess) handle(ctx context.Context, r *message.Request, out *message.RequestReply) error {
	switch r.Path {
	case "hang":
		return p.waits(ctx)
	case "lost":
		return errkind.New(errkind.Unavailable, "the connection is gone")
	case "die":
		p.Kill()
		return errkind.New(errkind.Unavailable, "gone")
	}
	if r.Operation != opRollback {
		p.asked <- r
	}
	out.Response = &message.Response{Data: `{"v":"` + r.Operation + `"}`}
	return nil
}

// rig is a Plugins with a mount of a plug-in.
type rig struct {
	*Plugins
	*fakes
	desk  *tablestest.Desk
	entry *mount.Entry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fakes: &fakes{}, desk: tablestest.New(t)}
	r.Plugins = New(Config{Runner: r.fakes, Now: r.desk.Now, Log: slog.New(slog.DiscardHandler), Version: "1.0",
		BuiltIn: func(_, name string) bool { return name == "kv" },
		Password: func(_ context.Context, _, policy string) (string, error) {
			return "", errkind.Errorf(errkind.NotFound, "no password policy %q", policy)
		},
		Cluster: func() (string, string) { return "name", "id" }}, r.desk.Gate, r.desk.Store)
	t.Cleanup(func() { r.End(); r.group.wait() })
	if err := r.register(t, `{"command":"x","sha256":"`+strings.Repeat("ab", 32)+`"}`); err != nil {
		t.Fatal(err)
	}
	r.entry = r.desk.Mount("x/", "mine", nil)
	r.entry.External = &mount.External{}
	return r
}

func (r *rig) register(t *testing.T, body string) error {
	f, err := secrets.ParseFields([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r.Register(t.Context(), Secret, "mine", &f)
}

func (r *rig) ask(ctx context.Context, op secrets.Operation, path string) (*secrets.Response, error) {
	return r.Engine(r.entry, []byte("salt")).Handle(ctx, nil, &secrets.Request{Op: op, Rest: path})
}

// A process is started by the first request, and another once it died: at once the first time, then ever later.
func TestStartedAgain(t *testing.T) {
	r := newRig(t)
	if resp, err := r.ask(t.Context(), secrets.Read, "a"); err != nil || string(resp.Data) != `{"v":"read"}` {
		t.Fatal(err, resp)
	}
	if s := r.Engine(r.entry, nil).Special(); len(s.Open) != 1 || len(s.Protected) != 1 {
		t.Error(s)
	}
	for i := range 5 {
		_, last := r.started()
		last.Kill()
		_, err := r.ask(t.Context(), secrets.Read, "a")
		if want := i == 0; (err == nil) != want {
			t.Fatalf("death %d: %v", i+1, err)
		}
		if err == nil {
			continue
		}
		if !errkind.Is(err, errkind.Unavailable) || !strings.Contains(err.Error(), "is not started again for") {
			t.Error(err)
		}
		r.desk.Time = r.desk.Time.Add(pause(i + 1))
		if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
			t.Fatal("after the pause:", err)
		}
	}
	_, last := r.started()
	r.desk.Time = r.desk.Time.Add(2 * steadyAfter)
	last.Kill()
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
		t.Error("one that lived long:", err)
	}
	if _, err := r.ask(t.Context(), secrets.Read, "die"); !errors.Is(err, errDied) {
		t.Error(err)
	}
}

// One that cannot be started says why, and is tried again after the pause.
func TestNotStarted(t *testing.T) {
	r := newRig(t)
	r.fail(errors.New("sha256: is another"))
	for range 2 {
		_, err := r.ask(t.Context(), secrets.Read, "a")
		if err == nil || !strings.Contains(err.Error(), "sha256: is another") {
			t.Error(err)
		}
	}
	r.fail(nil)
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err == nil {
		t.Error("started again without a pause")
	}
	r.desk.Time = r.desk.Time.Add(time.Minute)
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
		t.Error(err)
	}
	for range 4 {
		_, last := r.started()
		last.Kill()
		_, err := r.ask(t.Context(), secrets.Read, "a")
		if err == nil {
			continue
		}
		if err := r.register(t, `{"command":"y","sha256":"`+strings.Repeat("cd", 32)+`"}`); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
			t.Error("another program, without a pause:", err)
		}
	}
	r.entry.Type = "other"
	r.Retire(r.entry.UUID)
	_, err := r.ask(t.Context(), secrets.Read, "a")
	if err == nil || !strings.Contains(err.Error(), "not in the catalog") {
		t.Error(err)
	}
}

// The end of a term ends what is asked of a process that hangs, at once, and the process; what it still wants to store
// is refused.
func TestEndOfTerm(t *testing.T) {
	r := newRig(t)
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
		t.Fatal(err)
	}
	_, p := r.started()
	put, err := message.Marshal(&message.StorageWrite{Entry: &message.StorageEntry{Key: "k", Value: []byte("v")}})
	if err != nil {
		t.Fatal(err)
	}
	store := func() string {
		done, err := p.launch.Serve(t.Context(), message.StoragePut, put)
		if err != nil {
			t.Fatal(err)
		}
		return done.(*message.StorageDone).Err
	}
	if text := store(); text != "" {
		t.Fatal(text)
	}
	value, _, err := r.desk.Store.At(r.entry.Prefix()).Get(t.Context(), "k")
	if err != nil || string(value) != "v" {
		t.Error("not below the mount's prefix:", err)
	}
	p.tidied.Store(false)
	hung := make(chan error)
	go func() { _, err := r.ask(context.Background(), secrets.Read, "hang"); hung <- err }()
	polltest.Within(t, 10*time.Second, func() bool { return len(r.of1().places) == 1 }, "the request")
	r.desk.Gate.Set(nil)
	r.look()
	if err := <-hung; !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
	<-p.Ended()
	if p.tidied.Load() {
		t.Error("the next term waited for it to tidy up")
	}
	if store() == "" {
		t.Error("stored after the term")
	}
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err == nil {
		t.Error("answered after the term")
	}
	if n, _ := r.started(); n != 1 {
		t.Error(n, "processes")
	}
}

// A server that becomes the active one again has processes again.
func TestNextTerm(t *testing.T) {
	r := newRig(t)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		polltest.Within(t, 10*time.Second, func() bool {
			_, err := r.ask(t.Context(), secrets.Read, "a")
			return err == nil
		}, "an answer")
		_, p := r.started()
		cancel()
		<-ended
		<-p.Ended()
		if _, err := r.ask(t.Context(), secrets.Read, "a"); !errors.Is(err, errEnds) {
			t.Error("answered after the term:", err)
		}
	}
}

func (r *rig) of1() *instance {
	r.Plugins.mu.Lock()
	defer r.Plugins.mu.Unlock()
	return r.mounts[r.entry.UUID]
}

// A mount's process is started without a request, and asked for its periodic work; it goes with the mount.
func TestTended(t *testing.T) {
	r := newRig(t)
	r.look()
	polltest.Within(t, 10*time.Second, func() bool {
		n, _ := r.started()
		return n == 1 && r.of1().current() != nil
	}, "a start")
	_, p := r.started()
	r.desk.Time = r.desk.Time.Add(time.Hour)
	st := *r.desk.Gate.Load()
	st.Mounts = st.Mounts.Without("x/")
	r.desk.Gate.Set(&st)
	r.look()
	<-p.Ended()
}

// A process that hangs is killed once somebody waited in vain, and so is one that cannot be reached; one that says what
// it is lives.
func TestHangs(t *testing.T) {
	for _, path := range []string{"hang", "lost"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			for _, deaf := range []bool{false, true} {
				if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
					t.Fatal(err)
				}
				n, p := r.started()
				p.deaf.Store(deaf)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := r.ask(ctx, secrets.Read, path)
				cancel()
				if !errkind.Is(err, errkind.Unavailable) || errors.Is(err, errDied) {
					t.Errorf("%s: %v", path, err)
				}
				if n != 1 {
					t.Errorf("%s: %d processes, and the first one was well", path, n)
				}
				if deaf {
					<-p.Ended()
				}
			}
		})
	}
}

// One mount has a bound of requests, and so have those who wait for its start.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
		t.Fatal(err)
	}
	i := r.of1()
	for range maxCalls {
		i.places <- struct{}{}
	}
	if _, err := r.ask(t.Context(), secrets.Read, "a"); !errkind.Is(err, errkind.Overloaded) {
		t.Error(err)
	}
	_, p := r.started()
	p.Kill()
	if _, err := r.Engine(r.entry, nil).(engine.Waker).Wake(t.Context()); !errkind.Is(err, errkind.Overloaded) {
		t.Error(err)
	}
	for range maxCalls {
		<-i.places
	}
	if _, err := r.Engine(r.entry, nil).(engine.Waker).Wake(t.Context()); err != nil {
		t.Error(err)
	}
}

// Processes have a bound, and those of one namespace a lower one; what ended gives its place back once.
func TestPlaces(t *testing.T) {
	var p places
	var last func()
	for i := range maxOfSpace + 1 {
		free, err := p.take("one")
		if (err == nil) != (i < maxOfSpace) {
			t.Fatal(i, err)
		}
		if err == nil {
			last = free
		}
	}
	last()
	last()
	if _, err := p.take("one"); err != nil || p.taken() != maxOfSpace {
		t.Error(err, p.taken())
	}
	for range maxProcesses - maxOfSpace {
		if _, err := p.take(""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.take(""); !errkind.Is(err, errkind.Overloaded) {
		t.Error(err)
	}
	r := newRig(t)
	for range 3 {
		if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil || r.slots.taken() != 1 {
			t.Fatal(err, r.slots.taken())
		}
		_, p := r.started()
		r.Retire(r.entry.UUID)
		<-p.Ended()
		polltest.Within(t, 10*time.Second, func() bool { return r.slots.taken() == 0 }, "the place")
	}
}

// A record of the catalog that cannot be read takes its plug-in away alone; what was forgotten is not kept in memory.
func TestCatalogRead(t *testing.T) {
	r := newRig(t)
	damaged := storage.Put(catalogPrefix+"secret/a/-", []byte("{"))
	if err := r.desk.Store.Commit(t.Context(), []storage.Op{damaged}); err != nil {
		t.Fatal(err)
	}
	if r.Forget(); r.Find(Secret, "mine", "") != nil {
		t.Error("the catalog is kept")
	}
	if err := r.Load(t.Context()); err != nil || r.Find(Secret, "mine", "") == nil || r.Find(Secret, "a", "") != nil {
		t.Error(err)
	}
}

// What is no plug-in is not registered; each error names its field.
func TestRegistrations(t *testing.T) {
	r := newRig(t)
	sum := strings.Repeat("ab", 32)
	for body, want := range map[string]string{`{}`: "command: is missing", `{"command":"../x"}`: "without '..'",
		`{"command":"/bin/sh"}`: "below plugin_directory", `{"command":"a/../b"}`: "without '..'",
		`{"command":"x","sha256":"12"}`:                                         "sha256",
		`{"command":"x","sha256":"` + sum + `","version":"new"}`:                "version",
		`{"command":"x","sha256":"` + sum + `","env":["=x"]}`:                   "NAME=value",
		`{"command":"x","sha256":"` + sum + `","env":["LD_PRELOAD=/tmp/x"]}`:    "LD_PRELOAD",
		`{"command":"x","sha256":"` + sum + `","env":["A=1","GODEBUG=fips=0"]}`: "GODEBUG",
		`{"command":"x","sha256":"` + sum + `","oci_image":"img"}`:              "containers"} {
		if err := r.register(t, body); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	good := `{"command":"x -a","args":["-b"],"sha256":"` + sum + `","version":"1.2.0","env":["A=1"]}`
	for _, one := range [][3]string{{"database", "mine", "not run yet"}, {"kind", "mine", "must be secret or auth"},
		{Secret, "kv", "built in"}, {Secret, "a/b", "letters"}, {Auth, "..", "letters"}} {
		f, _ := secrets.ParseFields([]byte(good))
		if err := r.Register(t.Context(), one[0], one[1], &f); err == nil || !strings.Contains(err.Error(), one[2]) {
			t.Errorf("%v: %v", one, err)
		}
	}
	if err := r.register(t, good); err != nil {
		t.Fatal(err)
	}
	if e := r.Find(Secret, "mine", "v1.2.0"); e == nil || strings.Join(e.Args, " ") != "-a -b" {
		t.Error(e)
	}
	if e := r.Find(Secret, "mine", ""); e == nil || e.Version != "" {
		t.Error("the one without a version is meant where none is said:", e)
	}
	if err := r.Deregister(t.Context(), Secret, "mine", ""); err != nil {
		t.Fatal(err)
	}
	again := New(r.Config, r.desk.Gate, r.desk.Store)
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, details := again.Shown(Secret); fmt.Sprint(names) != "[mine]" || len(details) != 1 ||
		again.Info(Secret, "mine", "")["version"] != "v1.2.0" {
		t.Error(names, details)
	}
	off := New(Config{BuiltIn: r.BuiltIn, Now: r.desk.Now}, r.desk.Gate, r.desk.Store)
	f, _ := secrets.ParseFields([]byte(good))
	if err := off.Register(t.Context(), Secret, "mine", &f); !errors.Is(err, ErrOff) {
		t.Error(err)
	}
	if _, err := off.Engine(r.entry, nil).(engine.Waker).Wake(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "plugin_directory") {
		t.Error(err)
	}
}

// Answers come out as those of an engine of our own would.
func TestAnswers(t *testing.T) {
	e := &mount.Entry{Path: "auth/x/", Type: "mine"}
	write, read := &secrets.Request{Op: secrets.Update, Rest: "login"}, &secrets.Request{Op: secrets.Read}
	data := func(text string) *message.RequestReply {
		return &message.RequestReply{Response: &message.Response{Data: text}}
	}
	failed := func(kind uint32, code int64) *message.RequestReply {
		return &message.RequestReply{Err: &message.Error{Kind: kind, Code: code, Text: "why"}}
	}
	for name, c := range map[string]struct {
		r     *secrets.Request
		reply *message.RequestReply
		kind  errkind.Kind
		text  string
	}{
		"nothing to read":       {read, &message.RequestReply{}, errkind.NotFound, ""},
		"no names":              {&secrets.Request{Op: secrets.List}, data(`{"keys":null}`), errkind.NotFound, ""},
		"an error in the data":  {write, data(`{"error":"wrong"}`), errkind.Invalid, "wrong"},
		"a user's error":        {write, failed(message.ErrUser, 0), errkind.Invalid, "why"},
		"denied":                {write, failed(message.ErrDenied, 0), errkind.Denied, "why"},
		"no such path":          {write, failed(message.ErrUnsupportedPath, 0), errkind.NotFound, "unsupported path"},
		"a code":                {write, failed(message.ErrCoded, 404), errkind.NotFound, "why"},
		"no JSON":               {read, data(`[1`), errkind.Internal, "no JSON"},
		"a number of no status": {read, data(`{"http_status_code":7}`), errkind.Internal, "status"},
	} {
		_, err := answer(e, c.r, true, c.reply)
		if err == nil || errkind.Of(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if resp, err := answer(e, write, true, &message.RequestReply{}); err != nil || resp.Data != nil {
		t.Error("a write without an answer:", err)
	}
	resp, err := answer(e, write, true, failed(message.ErrUnknown, 0))
	if err != nil || resp.Raw == nil || resp.Raw.Status != 500 || string(resp.Raw.Body) != `{"errors":["why"]}` {
		t.Error("an error of no kind:", err, resp)
	}
	resp, err = answer(e, read, true, data(`{"http_status_code":404,"http_content_type":"text/plain",
		"http_raw_body":"aGVsbG8="}`))
	if err != nil || resp.Raw.Status != 404 || string(resp.Raw.Body) != "hello" {
		t.Error("a raw body:", err, resp)
	}
	reply := data("")
	reply.Response.Auth = &message.Auth{DisplayName: "jane", Policies: []string{"p"}, TokenType: 2,
		Internal: `{"role":"r"}`,
		Alias:    &message.Alias{Name: "jane"}, Lease: &message.LeaseOptions{TTL: int64(time.Hour), Renewable: true},
		GroupAliases: []*message.Alias{{Name: "g"}}}
	for _, at := range []*mount.Entry{e, {Path: "x/", Type: "mine"}} {
		if _, err := answer(at, write, !at.Auth(), reply); !errkind.Is(err, errkind.Internal) {
			t.Errorf("a login at %s where nobody logs in: %v", at.Path, err)
		}
	}
	resp, err = answer(e, write, true, reply)
	if err != nil || resp.Auth.DisplayName != "x-jane" || resp.Auth.Type != "batch" || resp.Auth.TTL != time.Hour ||
		fmt.Sprint(resp.Auth.Groups) != "[g]" {
		t.Fatal(err, resp)
	}
	args, _, err := ofLogin(e, engine.Login{Data: resp.Auth.Login})
	if err != nil || args.Request.Auth.Internal != `{"role":"r"}` || args.Request.Path != "login" {
		t.Error(err, args)
	}
	reply = data(`{"user":"u"}`)
	reply.Response.Secret = &message.Secret{Internal: `{"secret_type":"s"}`,
		Lease: &message.LeaseOptions{TTL: int64(time.Minute)}}
	resp, err = answer(e, &secrets.Request{Rest: "creds/a"}, true, reply)
	if err != nil || resp.Lease.TTL != time.Minute || !json.Valid(resp.Lease.Internal) {
		t.Fatal(err, resp)
	}
	args, err = ofLease(e, opRevoke, engine.Lease{ID: "id", Internal: resp.Lease.Internal}, time.Now())
	if err != nil || args.Request.Secret.Internal != `{"secret_type":"s"}` || args.Request.Path != "creds/a" {
		t.Error(err, args)
	}
}

// An answer that says itself what it is for HTTP says so much as the mount lets through, and ends where it says.
func TestRawAnswers(t *testing.T) {
	e := &mount.Entry{Path: "x/", Config: mount.Config{ResponseHeaders: []string{"x-one", "Content-Length",
		"Transfer-Encoding", "X-Bad Name", "Location"}}}
	header := func(values ...string) *message.Header { return &message.Header{Values: values} }
	reply := &message.RequestReply{Response: &message.Response{
		Data: `{"http_status_code":200,"http_raw_body":"x","http_content_type":"text/plain"}`,
		Headers: map[string]*message.Header{"X-One": header("1", "a\r\nX-Evil: 1"), "X-Two": header("2"),
			"Content-Length": header("0"), "transfer-encoding": header("chunked"), "X-Bad Name": header("1")}}}
	read := &secrets.Request{Op: secrets.Read}
	resp, err := answer(e, read, false, reply)
	if err != nil || fmt.Sprint(resp.Raw.Headers) != "[X-One 1]" {
		t.Error(err, resp)
	}
	for _, status := range []string{"204", "304"} {
		reply.Response.Data = `{"http_status_code":` + status + `,"http_raw_body":"HTTP/1.1 200 OK"}`
		if resp, err := answer(e, read, false, reply); err != nil || len(resp.Raw.Body) > 0 {
			t.Error(status, err, resp)
		}
	}
	for _, wrong := range []string{`"http_status_code":101`, `"http_status_code":600`,
		`"http_status_code":200,"http_content_type":"text/plain\r\nX-Evil: 1"`} {
		reply.Response.Data = "{" + wrong + "}"
		if _, err := answer(e, read, false, reply); !errkind.Is(err, errkind.Internal) {
			t.Error(wrong, err)
		}
	}
}

// What of the paths is special is told by the process that was started, not by the one that a reload makes meanwhile.
func TestSpecialOfTheStarted(t *testing.T) {
	r := newRig(t)
	b := r.Engine(r.entry, nil)
	s, err := b.(engine.Waker).Wake(t.Context())
	r.Retire(r.entry.UUID)
	if err != nil || len(s.Open) != 1 || len(s.Protected) != 1 {
		t.Error(err, s)
	}
	r.fail(errors.New("no"))
	if _, err := b.(engine.Waker).Wake(t.Context()); err == nil {
		t.Error("no error")
	}
}

// What a plug-in asks for and is not there is no service that is missing.
func TestServed(t *testing.T) {
	r := newRig(t)
	if _, err := r.ask(t.Context(), secrets.Read, "a"); err != nil {
		t.Fatal(err)
	}
	_, p := r.started()
	raw, err := message.Marshal(&message.PasswordArgs{Policy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.launch.Serve(t.Context(), message.GeneratePassword, raw)
	if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), "no password policy") {
		t.Error(err)
	}
	if _, err = p.launch.Serve(t.Context(), "/pb.SystemView/Other", nil); !errkind.Is(err, errkind.NotFound) {
		t.Error(err)
	}
}
