package node

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/archive"
)

// hostile is what one request may look like that wants to cost more than it is.
type hostile struct {
	name, method, path, body string
	status                   []int
}

func deepJSON(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }

// list writes a JSON list or the inside of an object of n items.
func list(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	return b.String()
}

func hostileRequests() []hostile {
	const many = 100_000
	brackets := strings.Repeat("(", many)
	refused := []int{400, 413}
	tags := list(many, func(i int) string { return fmt.Sprintf(`"t%d"`, i) })
	meta := list(many, func(i int) string { return fmt.Sprintf(`"k%d":"v"`, i) })
	rules := func(text string) string { return fmt.Sprintf(`{"Name":"p","Rules":%q}`, text) }
	regexps := func(re string) string {
		return fmt.Sprintf(`{"Kind":"service-router","Name":"web","Routes":[{"Match":{"HTTP":{"PathRegex":%q}},`+
			`"Destination":{"Service":"web"}}]}`, re)
	}
	query := func(re string) string {
		return fmt.Sprintf(`{"Name":"","Template":{"Type":"name_prefix_match","Regexp":%q},"Service":{"Service":"x"}}`, re)
	}
	nested := "${" + strings.Repeat("match(", many) + "1" + strings.Repeat(")", many) + "}"
	return []hostile{
		{"json deep: register", "PUT", "/v1/catalog/register", strings.Repeat(`{"Service":`, many), refused},
		{"json deep: closed", "PUT", "/v1/catalog/register",
			`{"Node":"n","Address":"1.2.3.4","Service":{"Service":"s","Proxy":{"Config":` + deepJSON(many) + `}}}`, refused},
		{"json deep: agent", "PUT", "/v1/agent/service/register", `{"Name":"s","Proxy":{"Config":` + deepJSON(many) +
			`}}`, refused},
		{"json deep: session", "PUT", "/v1/session/create", strings.Repeat("[", many), refused},
		{"json deep: txn", "PUT", "/v1/txn", strings.Repeat(`[{"KV":`, many), refused},
		{"json deep: config entry", "PUT", "/v1/config", `{"Kind":"proxy-defaults","Name":"global","Config":` +
			deepJSON(many) + `}`, refused},
		{"json deep: query", "POST", "/v1/query", `{"Service":` + deepJSON(many) + `}`, refused},
		{"json deep: policy", "PUT", "/v1/acl/policy", deepJSON(many), refused},
		{"rules deep: blocks", "PUT", "/v1/acl/policy", rules(strings.Repeat(`a {`, many)), refused},
		{"rules deep: lists", "PUT", "/v1/acl/policy", rules("a = " + strings.Repeat(`[`, many)), refused},
		{"rules deep: json", "PUT", "/v1/acl/policy", rules(deepJSON(many)), refused},
		{"rules deep: templates", "PUT", "/v1/acl/policy", rules(`a = "` + strings.Repeat(`${"`, many)), refused},
		{"rules: brackets", "PUT", "/v1/acl/policy", rules("a = " + strings.Repeat(`(`, many)), refused},
		{"filter: brackets in the address", "GET", "/v1/catalog/nodes?filter=" + brackets, "", []int{400, 414, 431}},
		{"filter: not", "GET", "/v1/catalog/nodes?filter=" + strings.Repeat("not+", many), "", []int{400, 414, 431}},
		{"filter: and", "GET", "/v1/catalog/nodes?filter=Node+%3D%3D+a" + strings.Repeat("+and+Node+%3D%3D+a", 40_000), "",
			[]int{200, 400, 414, 431}},
		{"filter: regexp", "GET", "/v1/catalog/nodes?filter=Node+matches+%22" + strings.Repeat("(a{1,1000}){1,1000}", 100) +
			"%22", "", []int{400}},
		{"filter: regexp deep", "GET", "/v1/catalog/nodes?filter=Node+matches+%22" + strings.Repeat("(", 10_000) + "%22", "",
			[]int{400}},
		{"filter: regexps", "GET", "/v1/catalog/nodes?filter=" + strings.Repeat("Node+matches+%60a%7B1,1000%7D%60+or+", 150) +
			"Node+is+empty", "", []int{400}},
		{"router: regexp", "PUT", "/v1/config", regexps(strings.Repeat("(a{1,1000})", 50)), refused},
		{"query: regexp", "POST", "/v1/query", query(strings.Repeat("(a{1,1000}){1,1000}", 100)), refused},
		{"query: regexp deep", "POST", "/v1/query", query(strings.Repeat("(", many)), refused},
		{"query: template deep", "POST", "/v1/query",
			fmt.Sprintf(`{"Name":"","Template":{"Type":"name_prefix_match"},"Service":{"Service":%q}}`, nested), refused},
		{"meta: node", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"1.2.3.4","NodeMeta":{` + meta + `}}`, refused},
		{"meta: agent service", "PUT", "/v1/agent/service/register", `{"Name":"s","Meta":{` + meta + `}}`, refused},
		{"tags: agent service", "PUT", "/v1/agent/service/register", `{"Name":"s","Tags":[` + tags + `]}`, refused},
		{"txn: operations", "PUT", "/v1/txn", "[" +
			list(many, func(int) string { return `{"KV":{"Verb":"get","Key":"a"}}` }) + "]", refused},
		{"watch: watches", "POST", "/v1/watch",
			`{"Watches":[` + list(many, func(i int) string {
				return fmt.Sprintf(`{"id":"%d","type":"key","key":"k%d"}`, i, i)
			}) + `]}`, refused},
		{"watch: deep", "POST", "/v1/watch", deepJSON(many), refused},
		{"parameters that fit", "GET", "/v1/catalog/nodes?" + strings.Repeat("a&", 400_000), "", []int{200, 400, 414}},
		{"key", "PUT", "/v1/kv/" + strings.Repeat("k", 500_000), "x", []int{400, 413, 414}},
	}
}

// maxWork bounds what one refused request may allocate, far below what it could ask for: bodies end at 1 MiB.
const maxWork = 64 << 20

// TestHostileRequests sends what costs more than it is over the real listener: each is refused, by the request's
// own fault and with bounded work, and the server goes on.
func TestHostileRequests(t *testing.T) {
	s := startServer(t, "s0", openACLs)
	s.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	for _, h := range hostileRequests() {
		var code int
		var text string
		n := allocated(func() { code, text = s.ask(h.method, h.path, h.body) })
		if !slices.Contains(h.status, code) {
			t.Errorf("%s: %d %.200q, want one of %v", h.name, code, text, h.status)
		}
		if n > maxWork {
			t.Errorf("%s: %d MB were allocated for %d kB", h.name, n>>20, (len(h.body)+len(h.path))>>10)
		}
	}
	s.awaitAsk("GET", "/v1/kv/ready?raw", "", http.StatusOK, "x")
}

// openACLs checks tokens, and lets those through that send none.
const openACLs = `bootstrap_expect = 1
acl {
  enabled = true
  default_policy = "allow"
  tokens {
    initial_management = "11111111-1111-1111-1111-111111111111"
    agent = "11111111-1111-1111-1111-111111111111"
    default = "11111111-1111-1111-1111-111111111111"
  }
}
`

func allocated(work func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileHeads sends heads that are too long, byte by byte as they are, and reads the answer while it sends.
func TestHostileHeads(t *testing.T) {
	s := startServer(t, "s0", openACLs)
	s.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	for name, h := range map[string]struct{ line, part string }{
		"10^5 headers":      {"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n", "X-A: aaaaaaaaaaaa\r\n"},
		"one header of MBs": {"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nX-A: ", strings.Repeat("a", 40)},
		"10^6 parameters":   {"GET /v1/catalog/nodes?", strings.Repeat("a=b&", 10)},
		"no line":           {"", strings.Repeat("G", 40)},
	} {
		n := allocated(func() {
			if status := pour(t, s.http, h.line, h.part); !slices.Contains([]string{"400", "414", "431"}, status) {
				t.Errorf("%s: answered %q", name, status)
			}
		})
		if n > maxWork {
			t.Errorf("%s: %d MB were allocated", name, n>>20)
		}
	}
	s.awaitAsk("GET", "/v1/kv/ready?raw", "", http.StatusOK, "x")
}

// pour sends line and part 10^5 times, and returns the status that comes meanwhile.
func pour(t *testing.T, addr, line, part string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
		chunk := strings.Repeat(part, 1000)
		for range 100 {
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
		}
	}()
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Errorf("no answer: %v", err)
	}
	_ = c.Close()
	<-sent
	_, rest, _ := strings.Cut(answer, " ")
	status, _, _ := strings.Cut(rest, " ")
	return status
}

// TestHostileArchives: a snapshot that says, or is, more than it looks like is refused before it fills disk or memory.
func TestHostileArchives(t *testing.T) {
	s := startServer(t, "s0", openACLs)
	s.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	var bomb, liar bytes.Buffer
	const size = 64 << 20
	if err := archive.Write(&bomb, &archive.Meta{Version: 1, Size: size}, zeros{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&liar)
	if err := tar.NewWriter(z).WriteHeader(&tar.Header{Name: "state.bin", Mode: 0o600, Size: 1 << 55}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{"64 MiB of nothing": {bomb.String(), 400}, "says that it has petabytes": {liar.String(), 413}} {
		n := allocated(func() {
			if code, text := s.ask("PUT", "/v1/snapshot", c.body); code != c.status {
				t.Errorf("%s: %d %s, want %d", name, code, text, c.status)
			}
		})
		if n > size/2 {
			t.Errorf("%s: %d MB were allocated for %d kB", name, n>>20, len(c.body)>>10)
		}
	}
	s.awaitAsk("GET", "/v1/kv/ready?raw", "", http.StatusOK, "x")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
