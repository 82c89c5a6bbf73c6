package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/telemetry"
)

// echoPlane counts, in its own Raft group, how often it was asked, and answers with the greeting of its configuration.
type echoPlane struct {
	plane.Idle
	raft     *raftgroup.Group
	asked    *telemetry.Counter
	mu       sync.Mutex
	greeting string
	count    uint64
}

// echoKeys are its section of the configuration.
type echoKeys struct {
	Enabled  bool   `key:"enabled" def:"false" doc:"answers what it was sent"`
	Greeting string `key:"greeting" def:"hello" opt:"reload" doc:"begins each answer"`
}

func echoOf(cfg *config.Config) *echoKeys { return cfg.Section("echo").(*echoKeys) }

// echoKind is the one line by which a process has the plane.
func echoKind() plane.Kind {
	return plane.Kind{Name: "echo", Keys: func() any { return new(echoKeys) }, Open: openEcho,
		Check: func(cfg *config.Config) (err error) {
			if echoOf(cfg).Greeting == "" {
				err = errors.New("echo.greeting: is missing")
			}
			return err
		}}
}

func openEcho(d *plane.Doors) (plane.Plane, error) {
	keys := echoOf(d.Cfg)
	if !keys.Enabled {
		return nil, nil
	}
	e := &echoPlane{greeting: keys.Greeting, asked: d.Metrics.Counter("echo.asked")}
	e.raft = d.Group(9, e)
	d.Route("POST /v1/echo", plane.Right{Resource: acl.Operator, Level: acl.Write}, http.HandlerFunc(e.serve))
	d.Handle(wire.Servers, "echo.say", e.say)
	d.Depends(func() []doctor.Dependency { return []doctor.Dependency{{Plane: "echo", Kind: "mountain"}} })
	d.Debug(func() any { e.mu.Lock(); defer e.mu.Unlock(); return map[string]uint64{"count": e.count} })
	return e, nil
}

func (e *echoPlane) Run(ctx context.Context) error { return e.raft.Run(ctx) }

func (e *echoPlane) Reload(cfg *config.Config) (func(), error) {
	return func() { e.mu.Lock(); defer e.mu.Unlock(); e.greeting = echoOf(cfg).Greeting }, echoKind().Check(cfg)
}

func (e *echoPlane) say(ctx context.Context, req []byte) ([]byte, error) {
	e.asked.Add(1)
	if _, err := e.raft.Propose(ctx, req); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return []byte(e.greeting + ", " + string(req)), nil
}

func (e *echoPlane) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if body, err := e.say(r.Context(), body); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	} else {
		_, _ = w.Write(body)
	}
}

func (e *echoPlane) ApplyBatch(cmds [][]byte) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count += uint64(len(cmds))
	return make([]any, len(cmds))
}

type echoed uint64

func (e *echoPlane) Snapshot() group.Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return echoed(e.count)
}

func (n echoed) WriteTo(w io.Writer) (int64, error) {
	return 8, binary.Write(w, binary.BigEndian, uint64(n))
}
func (e *echoPlane) Restore(r io.Reader) error { return binary.Read(r, binary.BigEndian, &e.count) }

// echoConfig is dev's with the plane's section.
func echoConfig(ports []int, section string) (*config.Config, error) {
	text := fmt.Sprintf("log_level = \"ERROR\"\nnode_name = \"test\"\nports { http = %d, serf_lan = %d, server = %d, "+
		"secrets = -1, serf_wan = -1, dns = -1, grpc = -1 }\nmonitor { enabled = false, agent { enabled = false } }\n"+
		"echo { enabled = true %s }", ports[0], ports[1], ports[2], section)
	return config.Load(config.Options{Dev: true, Style: config.Corbel, Fragments: []string{text}, Hostname: "test",
		Sections: plane.Sections([]plane.Kind{echoKind()})})
}

// TestPlaneIsOneValue: a plane that nothing outside this file knows has a Raft group, a route, an RPC, metrics,
// evidence, a part of the debug archive and keys of the configuration in a whole dev server.
func TestPlaneIsOneValue(t *testing.T) {
	ports, err := testport.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := echoConfig(ports, "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := New(cfg, echoKind())
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*Server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	ask := func(method, path, token, want string) {
		t.Helper()
		polltest.NoError(t, time.Minute, func() error {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("world"))
			r.Header.Set("X-Consul-Token", token)
			w := httptest.NewRecorder()
			p.doctor.ServeHTTP(w, r)
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.Contains(got, want) {
				return fmt.Errorf("%s: %s, want %s", path, got, want)
			}
			return nil
		}, "an answer")
	}
	ask("POST", "/v1/echo", "root", "200 hello, world")
	ask("POST", "/v1/echo", "wrong", "403 Permission denied")
	polltest.Until(t, func() bool { return len(p.Health().Lacks) == 0 }, "readiness with the plane")
	if got, err := p.RPC.Call(ctx, p.RPCAddr(), "echo.say", []byte("rpc")); err != nil || string(got) != "hello, rpc" {
		t.Error(string(got), err)
	}
	for path, want := range map[string]string{"/v1/agent/metrics": "echo.asked", "/v1/doctor/evidence": `"mountain"`,
		"/v1/internal/planes": `"echo":{"count":`, "/v1/internal/reach/test/v1/internal/planes": `"echo":{"count":`} {
		ask("GET", path, "root", want)
	}
	for greeting, wrong := range map[string]bool{"ciao": false, "": true} {
		fresh, err := echoConfig(ports, fmt.Sprintf(", greeting = %q", greeting))
		if err == nil {
			err = p.Reload(fresh)
		}
		if (err != nil) != wrong {
			t.Errorf("greeting %q: %v", greeting, err)
		}
	}
	ask("POST", "/v1/echo", "root", "200 ciao, world")
	p.Log.Debug("nobody follows", "plane", "echo")
	for _, path := range []string{"/v1/internal/log", "/v1/internal/reach/test/v1/internal/log"} {
		ask("GET", path, "root", `"msg":"nobody follows","plane":"echo"`)
		ask("GET", path, "wrong", "403 ")
	}
	if _, err := echoConfig(ports, ", gretting = 1"); err == nil || !strings.Contains(err.Error(), "echo.gretting") {
		t.Error(err)
	}
}
