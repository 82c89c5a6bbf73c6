package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/cli/command"
)

// fakeAgent keeps keys and sessions as the contract says, in memory, with blocking
// queries; and it counts what it was asked.
type fakeAgent struct {
	mu       sync.Mutex
	index    uint64
	keys     map[string]*fakeKey
	sessions map[string]bool
	made     int           // sessions
	changed  chan struct{} // closed and replaced at each change
	asked    []string
	answers  map[string]string // other paths
}

type fakeKey struct {
	Key                                        string
	Value                                      []byte
	Flags, LockIndex, CreateIndex, ModifyIndex uint64
	Session                                    string `json:",omitempty"`
}

// newAgent starts a fake agent and gives an env that talks to it.
func newAgent(t *testing.T) (*fakeAgent, *command.Env, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	f := &fakeAgent{index: 10, keys: map[string]*fakeKey{}, sessions: map[string]bool{}, changed: make(chan struct{}),
		answers: map[string]string{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	var out, errOut bytes.Buffer
	e := &command.Env{In: strings.NewReader(""), Out: &out, Err: &errOut, Getenv: func(k string) string {
		return map[string]string{"CORBEL_HTTP_ADDR": s.URL}[k]
	}}
	return f, e, &out, &errOut
}

func (f *fakeAgent) bumpLocked() {
	f.index++
	close(f.changed)
	f.changed = make(chan struct{})
}

// end ends a session as its TTL would.
func (f *fakeAgent) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, id)
	for _, k := range f.keys {
		if k.Session == id {
			k.Session = ""
			k.ModifyIndex = f.index + 1
		}
	}
	f.bumpLocked()
}

func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/v1/kv/"):
		f.kvLocked(w, r, strings.TrimPrefix(path, "/v1/kv/"))
	case path == "/v1/session/create":
		f.made++ // not how many there are: who came later would be somebody who is still here
		id := fmt.Sprintf("s%d", f.made)
		f.sessions[id] = true
		fmt.Fprintf(w, `{"ID":%q}`, id)
	case strings.HasPrefix(path, "/v1/session/destroy/"):
		id := strings.TrimPrefix(path, "/v1/session/destroy/")
		f.mu.Unlock()
		f.end(id)
		f.mu.Lock()
		io.WriteString(w, "true")
	case strings.HasPrefix(path, "/v1/session/renew/"):
		io.WriteString(w, "[]")
	default:
		answer, ok := f.answers[path]
		if !ok {
			http.Error(w, "not recognised", http.StatusNotFound)
			return
		}
		w.Header().Set("X-Consul-Index", strconv.FormatUint(f.index, 10))
		io.WriteString(w, answer)
	}
}

func (f *fakeAgent) kvLocked(w http.ResponseWriter, r *http.Request, key string) {
	q := r.URL.Query()
	switch r.Method {
	case http.MethodGet:
		if index, _ := strconv.ParseUint(q.Get("index"), 10, 64); index > 0 {
			wait, _ := time.ParseDuration(q.Get("wait"))
			deadline := time.NewTimer(wait)
			defer deadline.Stop()
			for expired := false; f.index <= index && !expired; {
				changed := f.changed
				f.mu.Unlock()
				select {
				case <-changed:
				case <-deadline.C:
					expired = true
				case <-r.Context().Done():
					expired = true
				}
				f.mu.Lock()
			}
		}
		w.Header().Set("X-Consul-Index", strconv.FormatUint(f.index, 10))
		list := []*fakeKey{}
		for _, name := range command.SortedKeys(f.keys) {
			if name == key || q.Has("recurse") && strings.HasPrefix(name, key) {
				list = append(list, f.keys[name])
			}
		}
		if len(list) == 0 {
			w.WriteHeader(404)
			return
		}
		json.NewEncoder(w).Encode(list)
	case http.MethodPut:
		value, _ := io.ReadAll(r.Body)
		k := f.keys[key]
		fresh := k == nil
		if fresh {
			k = &fakeKey{Key: key, CreateIndex: f.index + 1}
		}
		ok := true
		if q.Has("cas") {
			cas, _ := strconv.ParseUint(q.Get("cas"), 10, 64)
			ok = cas == k.ModifyIndex
		}
		if id := q.Get("acquire"); id != "" {
			ok = f.sessions[id] && (k.Session == "" || k.Session == id)
			if ok {
				k.Session = id
				k.LockIndex++
			}
		}
		if id := q.Get("release"); id != "" {
			if ok = k.Session == id; ok {
				k.Session = ""
			}
		}
		if ok {
			k.Flags, _ = strconv.ParseUint(q.Get("flags"), 10, 64)
			k.Value, k.ModifyIndex = value, f.index+1
			f.keys[key] = k
			f.bumpLocked()
		}
		fmt.Fprint(w, ok)
	case http.MethodDelete:
		for name := range f.keys {
			if name == key || q.Has("recurse") && strings.HasPrefix(name, key) {
				delete(f.keys, name)
			}
		}
		f.bumpLocked()
		io.WriteString(w, "true")
	}
}

// TestNormalise holds how single-dash long flags become double-dash ones.
func TestNormalise(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"agent -dev", "agent --dev"},
		{"agent -dev -http-port 9500 -data-dir=/d", "agent --dev --http-port 9500 --data-dir=/d"},
		{"agent --dev", "agent --dev"},
		{"kv get -http-addr=h:1 key", "kv get --http-addr=h:1 key"},
		{"kv get -token -raw key", "kv get --token -raw key"}, // the value of -token
		{"kv get -stale key -raw", "kv get --stale key --raw"},
		{"kv put key -- -not-a-flag", "kv put key -- -not-a-flag"},
		{"kv put key -", "kv put key -"},
		{"kv put -flags 3 key -12", "kv put --flags 3 key -12"},
		{"lock -n 3 -verbose pre sh -c -verbose", "lock -n 3 --verbose pre sh -c -verbose"},
		{"watch -type=key -key k handler -type", "watch --type=key --key k handler -type"},
		{"operator raft list-peers -stale", "operator raft list-peers --stale"},
		{"kv get -h", "kv get -h"},
		{"kv get -nope", "kv get --nope"},
		{"-version", "--version"},
		{"server -bootstrap-expect 3 -retry-join a -retry-join b",
			"server --bootstrap-expect 3 --retry-join a --retry-join b"},
		{"version -format json", "version --format json"},
	} {
		e := &command.Env{Out: io.Discard, Err: io.Discard}
		args := strings.Fields(tt.in)
		if got := strings.Join(normalise(root(e, args), args), " "); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}

// TestExitCodes holds the difference between a failure and a wrong call.
func TestExitCodes(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	f.answers["/v1/status/leader"] = `""`
	for _, tt := range []struct {
		args string
		code int
		text string // in stdout or stderr
	}{
		{"version", 0, "Corbel v"},
		{"-version", 0, "Corbel v"},
		{"version -format=json", 0, `"Version"`},
		{"version -format=yaml", 2, "must be pretty or json"},
		{"", 2, "Usage:"},
		{"kv", 2, "Usage:"},
		{"--help", 0, "Catalog:"},
		{"kv get --help", 0, "--recurse"},
		{"nope", 2, `unknown command "nope"`},
		{"kv nope", 2, `unknown command "nope" for "corbel kv"`},
		{"kv get", 2, "needs one key"},
		{"kv get a b", 2, `does not know what to do with "b"`},
		{"kv get -nope a", 2, "unknown flag: --nope"},
		{"kv get missing", 1, "no key exists at missing"},
		{"kv put k v", 0, "Success! Data written to: k"},
		{"kv put -cas=0 k v", 1, "its ModifyIndex is not 0"},
		{"kv put -cas -modify-index=11 k w", 0, "Success!"},
		{"kv put -cas=x k v", 2, "not an index"},
		{"kv get k", 0, "w\n"},
		{"kv get -base64 k", 0, "dw==\n"},
		{"kv delete -recurse -cas=1 k", 2, "exclude each other"},
		{"kv delete", 2, "needs one key"},
		{"kv delete k", 0, "Success! Deleted key: k"},
		{"members", 1, "Unexpected response code: 404"},
		{"members -http-addr=127.0.0.1:1", 1, "is the agent running? try `corbel dev`"},
		{"watch", 2, "must be key, keyprefix"},
		{"watch -type key", 2, "needs --key"},
		{"lock onlyprefix", 2, "a prefix and a command"},
		{"server -data-dir /nonexistent -bind nope", 1, "bind_addr \"nope\" must be one IP address"},
		{"dev -http-port web", 1, "-http-port: ports.http must be a number"},
		{"operator raft remove-peer", 2, "one of --id and --address"},
		{"services register", 2, "either files or --name"},
	} {
		out.Reset()
		errOut.Reset()
		code := run(t.Context(), e, strings.Fields(tt.args))
		if all := out.String() + errOut.String(); code != tt.code || !strings.Contains(all, tt.text) {
			t.Errorf("corbel %s: code %d, want %d; wanted %q in:\n%s", tt.args, code, tt.code, tt.text, all)
		}
	}
}

// TestTables holds the printed forms.
func TestTables(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	f.answers = map[string]string{
		"/v1/catalog/services": `{"web":["v1","edge"],"consul":[]}`,
		"/v1/catalog/nodes":    `[{"Node":"n1","ID":"u1","Address":"10.0.0.1","Datacenter":"dc1","Meta":{"rack":"r1"}}]`,
		"/v1/health/service/web": `[{"Node":{"Node":"n1","Address":"10.0.0.1"},"Service":{"ID":"web-1","Service":"web","Port":80,"Tags":["v1"]},"Checks":[{"CheckID":"c1","Status":"warning"},{"CheckID":"c2","Status":"passing"}]},
			{"Node":{"Node":"node-with-a-long-name","Address":"10.0.0.2"},"Service":{"ID":"web-2","Address":"10.1.1.1","Port":8080,"Tags":null},"Checks":[]}]`,
		"/v1/health/service/none":   `[]`,
		"/v1/health/service/consul": `[{"Node":{"Node":"n1"},"Service":{"ID":"consul","Service":"consul"},"Checks":[]}]`,
		"/v1/agent/members": `[{"Name":"n2","Addr":"10.0.0.2","Port":8301,"Status":4,"Tags":{"role":"node","dc":"dc1","build":"1.21.4:abc"}},
			{"Name":"n1","Addr":"10.0.0.1","Port":8301,"Status":1,"Tags":{"role":"consul","dc":"dc1","build":"1.21.4:abc"}}]`,
		"/v1/operator/raft/configuration": `{"Servers":[{"ID":"u1","Node":"n1","Address":"10.0.0.1:8300","Leader":true,` +
			`"Voter":true,"LastIndex":7}],"Index":3}`,
		"/v1/agent/self": `{"Stats":{"raft":{"state":"Leader"},"agent":{"checks":"1"}}}`,
		"/v1/operator/autopilot/state": `{"Healthy":true,"FailureTolerance":1,"Servers":{"u1":{"Name":"n1",` +
			`"Address":"a:1","Status":"leader","NodeStatus":"alive","Healthy":true,"LastContact":"0s","LastIndex":9}}}`,
	}
	for _, tt := range []struct{ args, want string }{
		{"services list", "SERVICE  INSTANCES  PASSING  WARNING  CRITICAL  TAGS\n" +
			"web      2          1        1        0         v1,edge\nconsul   1          1        0        0\n"},
		{"services list -json", `[
    {
        "Name": "web",
        "Tags": [
            "v1",
            "edge"
        ],
        "Instances": 2,
        "Passing": 1,
        "Warning": 1,
        "Critical": 0
    },
    {
        "Name": "consul",
        "Tags": [],
        "Instances": 1,
        "Passing": 1,
        "Warning": 0,
        "Critical": 0
    }
]
`},
		{"services show web", "NODE                   ID     ADDRESS        STATUS   TAGS  FAILING CHECKS\nn1             " +
			"        web-1  10.0.0.1:80    warning  v1    c1\nnode-with-a-long-name  web-2  10.1.1.1:8080  passing\n"},
		{"nodes", "NODE  ADDRESS   DC   STATUS   INSTANCES  PASSING  WARNING  CRITICAL\n" +
			"n1    10.0.0.1  dc1  warning  2          1        1        0\n"},
		{"nodes -detailed", "NODE  ADDRESS   DC   STATUS   INSTANCES  PASSING  WARNING  CRITICAL  ID  META\n" +
			"n1    10.0.0.1  dc1  warning  2          1        1        0         u1  rack=r1\n"},
		{"members", "NODE  ADDRESS        STATUS  TYPE    VERSION  DC\nn1    10.0.0.1:8301  alive   server  1.21.4   " +
			"dc1\nn2    10.0.0.2:8301  failed  client  1.21.4   dc1\n"},
		{"members -status=failed", "NODE  ADDRESS        STATUS  TYPE    VERSION  DC\nn2    10.0.0.2:8301  failed  client " +
			" 1.21.4   dc1\n"},
		{"operator raft list-peers", "NODE  ID  ADDRESS        STATE   VOTER  LAST INDEX\nn1    u1  10.0.0.1:8300  leader " +
			" true   7\n"},
		{"operator autopilot state", "Healthy: true\nFailure tolerance: 1\n\nNODE  ADDRESS  STATUS  GOSSIP  HEALTHY  LAST " +
			"CONTACT  LAST INDEX\nn1    a:1      leader  alive   true     0s            9\n"},
		{"info", "agent:\n\tchecks = 1\nraft:\n\tstate = Leader\n"},
	} {
		out.Reset()
		if code := run(t.Context(), e, strings.Fields(tt.args)); code != 0 || out.String() != tt.want {
			t.Errorf("corbel %s: code %d\n%s\nwant\n%s%s", tt.args, code, out, tt.want, errOut)
		}
	}
	if code := run(t.Context(), e, []string{"services", "show", "none"}); code != 1 ||
		!strings.Contains(errOut.String(), "no instances of none") {
		t.Errorf("a service without instances: %d %s", code, errOut)
	}
}

// TestExportImport: what export writes, import reads back, byte for byte.
func TestExportImport(t *testing.T) {
	f, e, out, errOut := newAgent(t)
	f.keys["a/1"] = &fakeKey{Key: "a/1", Value: []byte{0, 255, '<'}, Flags: 7, ModifyIndex: 3}
	f.keys["a/2"] = &fakeKey{Key: "a/2", ModifyIndex: 4}
	if code := run(t.Context(), e, []string{"kv", "export", "a/"}); code != 0 {
		t.Fatal(errOut)
	}
	e.In = strings.NewReader(out.String())
	if code := run(t.Context(), e, []string{"kv", "import", "-prefix", "b/", "-"}); code != 0 {
		t.Fatal(errOut)
	}
	if k := f.keys["b/a/1"]; k == nil || !bytes.Equal(k.Value, []byte{0, 255, '<'}) || k.Flags != 7 ||
		f.keys["b/a/2"] == nil {
		t.Fatalf("imported %+v", f.keys)
	}
	before := len(f.keys)
	bad := `[{"key":"x","value":"` + base64.StdEncoding.EncodeToString([]byte("v")) + `"},{"key":"y","value":"%"}]`
	if code := run(t.Context(), e, []string{"kv", "import", bad}); code != 1 || len(f.keys) != before {
		t.Fatalf("half an import: %v", f.keys)
	}
}

// TestHelpIsLazy: --help builds no command but the root.
func TestHelpIsLazy(t *testing.T) {
	e := &command.Env{Out: io.Discard, Err: io.Discard}
	for _, c := range root(e, []string{"--help"}).Commands() {
		if c.HasLocalFlags() || c.HasSubCommands() {
			t.Errorf("%s was built", c.Name())
		}
	}
	for _, c := range root(e, []string{"completion"}).Commands() {
		if c.Short == "" || c.GroupID == "" {
			t.Errorf("%s lacks a text or group", c.Name())
		}
	}
}

func BenchmarkHelp(b *testing.B) {
	for b.Loop() {
		e := &command.Env{Out: io.Discard, Err: io.Discard}
		if run(context.Background(), e, []string{"--help"}) != 0 {
			b.Fatal("failed")
		}
	}
}
