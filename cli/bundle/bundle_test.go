package bundle

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// memory is a Sink that keeps files.
type memory struct {
	mu    sync.Mutex
	files map[string]string
	full  bool
}

func (m *memory) Add(path string, content []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errors.New("the disk is full")
	}
	m.files[path] = string(content)
	return nil
}

// agent answers everything; path refuse is refused.
func agent(t *testing.T, refuse string) *client.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case refuse != "" && strings.HasPrefix(r.URL.Path, refuse):
			http.Error(w, "Permission denied", http.StatusForbidden)
		case r.URL.Path == "/v1/agent/monitor":
			_, _ = w.Write([]byte("{\"msg\":\"joined with token=abcdef\"}\n"))
			w.(http.Flusher).Flush()
			<-r.Context().Done() // a log never ends by itself
		default:
			_, _ = w.Write([]byte(`{"Token":"abcdef","TokenTTL":"30s","Path":"` + r.URL.Path + `","Line":"my-own-secret"}`))
		}
	}))
	t.Cleanup(s.Close)
	cl, err := client.New(client.Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// TestGather: each member gives what it has; one that is gone and one that refuses are in the index, and nothing
// secret is in a file.
func TestGather(t *testing.T) {
	gone, err := client.New(client.Config{Address: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	sink := &memory{files: map[string]string{}}
	index, err := Gather(t.Context(), Config{Captures: Captures, Duration: 50 * time.Millisecond,
		Interval: 20 * time.Millisecond, LogLevel: "debug", Secrets: []string{"my-own-secret"}, Sink: sink,
		Nodes: []Node{{Name: "a", Client: agent(t, "")}, {Name: "../b", Client: agent(t, "/debug/")},
			{Name: "gone", Client: gone}, {Name: "failed", Error: "gossip says it is failed"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"cluster/members.json", "nodes/a/self.json", "nodes/a/host.json", "nodes/a/log.jsonl",
		"nodes/a/log-before.jsonl",
		"nodes/a/metrics-0001.json", "nodes/a/metrics-0002.json",
		"nodes/a/heap-begin.prof", "nodes/a/cpu.prof", "nodes/a/trace.out", "nodes/_b/self.json", "index.json"} {
		if _, ok := sink.files[path]; !ok {
			t.Errorf("%s is not in the archive", path)
		}
	}
	for path, text := range sink.files {
		if !strings.HasSuffix(path, ".prof") && !strings.HasSuffix(path, ".out") && (strings.Contains(text, "abcdef") ||
			strings.Contains(text, "my-own-secret")) {
			t.Errorf("%s holds a secret: %s", path, text)
		}
	}
	if !strings.Contains(sink.files["nodes/a/self.json"], `"TokenTTL": "30s"`) {
		t.Errorf("too much was taken out: %s", sink.files["nodes/a/self.json"])
	}
	if _, ok := sink.files["nodes/_b/cpu.prof"]; ok {
		t.Error("a refusal became a file")
	}
	var read Index
	if err := json.Unmarshal([]byte(sink.files["index.json"]), &read); err != nil || read.Kind != "corbel-debug" ||
		len(read.Files) != len(index.Files) {
		t.Fatalf("index.json: %v %+v", err, read)
	}
	if read.Nodes[0].Error != "" || read.Nodes[1].Error != "" || read.Nodes[2].Error == "" || read.Nodes[3].Error == "" {
		t.Errorf("nodes: %+v", read.Nodes)
	}
	why := map[string]string{}
	for _, f := range read.Files {
		why[f.Path] = f.Error
	}
	if !strings.Contains(why["nodes/_b/cpu.prof"], "Permission denied") || why["nodes/gone/self.json"] == "" ||
		why["nodes/a/cpu.prof"] != "" {
		t.Errorf("errors: %v", why)
	}
}

// TestGatherTellsOfItsSink: a full disk is an error, not an archive with holes.
func TestGatherTellsOfItsSink(t *testing.T) {
	_, err := Gather(t.Context(), Config{Captures: []string{"agent"}, Duration: time.Millisecond,
		Interval: time.Millisecond, Sink: &memory{full: true}, Nodes: []Node{{Name: "a", Client: agent(t, "")}}})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatal(err)
	}
}

func TestRedact(t *testing.T) {
	r := NewRedactor([]string{"11111111-2222", "short"})
	for _, tt := range []struct{ path, in, want string }{
		{"log", `request with X-Consul-Token: 1234 came`, `request with X-Consul-Token: hidden came`},
		{"log", `GET /v1/kv/a?token=1234&raw`, `GET /v1/kv/a?token=hidden&raw`},
		{"log", `{"msg":"x","secret_id":"1234"}`, `{"msg":"x","secret_id":"hidden"}`},
		{"log", `key BQEFCQ4TGB0iJywxNjtARUpPVFleY2htcnd8gYaLkJU= was used`, `key hidden was used`},
		{"log", `it was 11111111-2222 in short`, `it was hidden in short`},
		{"log", "a\n-----BEGIN EC PRIVATE KEY-----\nAAA\n-----END EC PRIVATE KEY-----\nb", "a\nhidden\nb"},
		{"x.json", `{"acl.tokens.default":"x","acl.token_ttl":"30s","encrypt":"y","encrypt_verify_incoming":true,` +
			`"ca_file":"/x","key_file":"/y","n":18446744073709551615}`,
			`{"acl.token_ttl":"30s","acl.tokens.default":"hidden","ca_file":"/x","encrypt":"hidden",` +
				`"encrypt_verify_incoming":true,"key_file":"/y","n":18446744073709551615}`},
		{"x.prof", "token=1234", "token=1234"},
	} {
		got := string(r.File(tt.path, []byte(tt.in)))
		if tt.path == "x.json" {
			var v json.RawMessage
			if err := json.Unmarshal([]byte(got), &v); err != nil {
				t.Error(err)
			}
			got = strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(got)
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}
