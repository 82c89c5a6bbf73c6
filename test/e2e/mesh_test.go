package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/test/fetch"
)

// TestMeshWithEnvoy is the mesh as its users have it: real Envoys of the newest version that is
// supported, started by `connect envoy`, between real applications.
func TestMeshWithEnvoy(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"api","Protocol":"http"}`)
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"rpc","Protocol":"grpc"}`)
	r.service("api-1", "api", "1", backend(t, "one"), nil)
	r.service("api-2", "api", "2", backend(t, "two"), nil)
	r.service("db", "db", "1", echo(t), nil)
	r.service("rpc", "rpc", "1", grpcEcho(t), nil)
	r.service("web", "web", "1", backend(t, "web"), map[string]int{"api": r.port("to api"), "db": r.port("to db"),
		"rpc": r.port("to rpc")})
	for _, id := range []string{"api-1", "api-2", "db", "rpc", "web"} {
		r.proxy(id)
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, *meshRig)
	}{
		{"traffic", meshTraffic}, {"intentions", meshIntentions}, {"intentions by request", meshRequests},
		{"router and splitter", meshRoutes},
		{"failover", meshFailover}, {"rotation", meshRotation}, {"without corbel", meshAlone}, {"status", meshStatus},
	} {
		outer := r.TB
		if !t.Run(part.name, func(t *testing.T) {
			r.TB = t
			part.run(t, r)
		}) {
			r.TB = outer
			return // what follows builds on it
		}
		r.TB = outer
	}
}

// TestMeshWithOldestEnvoy is the same thing in small with the oldest Envoy that is supported.
func TestMeshWithOldestEnvoy(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, fetch.Envoys[0]))
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"api","Protocol":"http"}`)
	r.service("api-1", "api", "1", backend(t, "one"), nil)
	r.service("web", "web", "1", backend(t, "web"), map[string]int{"api": r.port("to api")})
	r.proxy("api-1")
	r.proxy("web")
	r.await("a request through both proxies", func() bool {
		status, _ := r.get(r.port("to api"), "/")
		return status == http.StatusOK
	})
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=api", `{"Action":"deny"}`)
	r.await("the refusal", func() bool {
		status, _ := r.get(r.port("to api"), "/")
		return status == http.StatusForbidden
	})
	r.synced(2)
	t.Run("evidence", func(t *testing.T) { evidenceOfACell(t, r) })
}

// evidenceOfACell: a change that reaches proxies while somebody looks is a cell of the propagation screen, which leads
// to what was changed, by keyboard.
func evidenceOfACell(t *testing.T, r *meshRig) {
	v := view(t, r.http)
	v.see(".planes", "sidecars of 2 services")
	v.run(chromedp.Navigate(r.http + "/ui/propagation"))
	v.see(".grid", "acknowledged")
	r.service("api-2", "api", "2", backend(t, "two"), nil)
	v.see(".heat rect[role=button] title", "changes, ")
	// Of each resource a proxy tells of the newest change: what an older cell counted may be gone on a slow machine.
	polltest.Until(t, func() bool {
		rows, err := evaluate[string](v, "document.querySelector('section .grid')?.textContent ?? ''")
		if err == nil && strings.Contains(rows, "-sidecar-proxy") {
			return true
		}
		v.run(chromedp.Focus(".heat rect[role=button]:last-of-type"))
		v.keys(kb.Enter)
		return false
	}, "a proxy behind the newest cell")
	v.axe("the evidence of a cell")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
}

// TestMeshWithoutAgent: a proxy of a node without an agent gets its configuration from a server.
func TestMeshWithoutAgent(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.must("PUT", "/v1/catalog/register",
		fmt.Sprintf(
			`{"Node":"far","Address":"127.0.0.1","Service":{"Kind":"connect-proxy","ID":"web-proxy","Service":"web-proxy","Address":"127.0.0.1","Port":%d,
		"Proxy":{"DestinationServiceName":"web","LocalServicePort":%d,"Upstreams":[{"DestinationName":"web","LocalBindPort":%d}]}}}`, r.port("far public"), backend(t, "far"), r.port("to web")))
	r.envoyArgs = []string{"--proxy-id", "web-proxy", "--node-name", "far"}
	r.proxy("web-proxy")
	r.await("a request through the proxy to itself", func() bool {
		_, body := r.get(r.port("to web"), "/")
		return body == "far"
	})
	r.synced(1)
	r.must("PUT", "/v1/catalog/deregister", `{"Node":"far","ServiceID":"web-proxy"}`)
	r.await("the stream to end", func() bool {
		_, body := r.ask("GET", "/v1/internal/mesh/proxies", "")
		return strings.Contains(body, `"Proxies": 0`) || strings.Contains(body, `"Proxies":0`)
	})
}

// meshTraffic: requests, connections and gRPC reach their services under mutual TLS.
func meshTraffic(t *testing.T, r *meshRig) {
	seen := map[string]bool{}
	r.await("requests to both instances", func() bool {
		status, body := r.get(r.port("to api"), "/")
		seen[body] = status == http.StatusOK
		return seen["one"] && seen["two"]
	})
	r.await("an echo over TCP", func() bool { return echoed(r.port("to db")) })
	r.await("a gRPC call", func() bool { return grpcCalled(r.port("to rpc")) })
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", r.port("to api")))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if client := resp.Header.Get("x-client"); !strings.Contains(client, "/ns/default/dc/dc1/svc/web") {
		t.Errorf("api was told that its client is %q", client)
	}
	if status, body := r.get(r.port("api-1 public"), "/"); status != 0 {
		t.Errorf("the public listener answers without a certificate: %d %s", status, body)
	}
}

// meshIntentions: what is denied is refused, what is allowed again works again.
func meshIntentions(t *testing.T, r *meshRig) {
	for destination, reached := range map[string]func() bool{
		"db": func() bool { return echoed(r.port("to db")) },
		"api": func() bool { // by any of its instances: requests go to them in turn
			for range 4 {
				if status, _ := r.get(r.port("to api"), "/"); status == http.StatusOK {
					return true
				}
			}
			return false
		},
	} {
		r.must("PUT", "/v1/connect/intentions/exact?source=web&destination="+destination, `{"Action":"deny"}`)
		begin := time.Now()
		r.await("the refusal by "+destination, func() bool { return !reached() })
		t.Logf("%s refused %s after the intention was written", destination, time.Since(begin).Round(time.Millisecond))
		r.must("DELETE", "/v1/connect/intentions/exact?source=web&destination="+destination, "")
		r.await(destination+" to be reached again", reached)
	}
}

// meshRequests: by path and by header. What no permission names falls to the default policy, which allows here.
func meshRequests(t *testing.T, r *meshRig) {
	r.must("PUT", "/v1/config", `{"Kind":"service-intentions","Name":"api","Sources":[{"Name":"web","Permissions":[
		{"Action":"deny","HTTP":{"PathExact":"/open/not"}},
		{"Action":"allow","HTTP":{"PathPrefix":"/open"}},
		{"Action":"allow","HTTP":{"PathPrefix":"/","Header":[{"Name":"x-key","Exact":"secret"}]}},
		{"Action":"deny","HTTP":{"PathPrefix":"/"}}]}]}`)
	port := r.port("to api")
	cases := []struct {
		path   string
		header []string
		want   int
	}{
		{"/open/x", nil, 200}, {"/open/not", nil, 403}, {"/closed", nil, 403}, {"/closed", []string{"x-key", "secret"}, 200},
		{"/closed", []string{"x-key", "other"}, 403},
		{"/open/../closed", nil, 403},
	}
	wrong := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(wrong)
		}
	})
	r.await("each request to be judged as the rules say, by both instances", func() bool {
		for _, c := range cases {
			for range 4 {
				if status, _ := r.get(port, c.path, c.header...); status != c.want {
					wrong = fmt.Sprintf("%s %v: %d, want %d", c.path, c.header, status, c.want)
					return false
				}
			}
		}
		return true
	})
	r.must("DELETE", "/v1/config/service-intentions/api", "")
	r.await("the end of the rules", func() bool {
		for range 4 {
			if status, _ := r.get(port, "/closed"); status != http.StatusOK {
				return false
			}
		}
		return true
	})
}

// subsets are two versions of api.
const subsets = `{"Kind":"service-resolver","Name":"api","DefaultSubset":"v1","Subsets":{"v1":{` +
	`"Filter":"Service.Meta.version == 1"},"v2":{"Filter":"Service.Meta.version == 2"}}%s}`

// meshRoutes: subsets, a router by path, and a splitter that gives each its share.
func meshRoutes(t *testing.T, r *meshRig) {
	port := r.port("to api")
	r.must("PUT", "/v1/config", fmt.Sprintf(subsets, ""))
	r.must("PUT", "/v1/config", `{"Kind":"service-router","Name":"api","Routes":[{"Match":{"HTTP":{`+
		`"PathPrefix":"/new"}},"Destination":{"ServiceSubset":"v2","PrefixRewrite":"/"}}]}`)
	r.await("the router", func() bool { _, body := r.get(port, "/new/x"); return body == "two" })
	r.await("the default subset", func() bool { _, body := r.get(port, "/"); return body == "one" })
	r.must("DELETE", "/v1/config/service-router/api", "")
	r.must("PUT", "/v1/config", `{"Kind":"service-splitter","Name":"api","Splits":[{"Weight":90,"ServiceSubset":"v1"},{`+
		`"Weight":10,"ServiceSubset":"v2"}]}`)
	r.await("the splitter", func() bool { _, body := r.get(port, "/"); return body == "two" })
	r.await("the end of the router", func() bool { _, body := r.get(port, "/new"); return body == "one" })
	share := func() float64 {
		const n = 3000
		var two atomic.Int64
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range n / 4 {
					switch status, body := r.get(port, "/"); {
					case status != http.StatusOK:
						t.Errorf("%d %s", status, body)
					case body == "two":
						two.Add(1)
					}
				}
			})
		}
		group.Wait()
		sigma := math.Sqrt(n * 0.1 * 0.9)
		return (float64(two.Load()) - 0.1*n) / sigma
	}
	// One in 370 honest tries lies beyond three sigma; one in 137,000 does so twice.
	if first := share(); math.Abs(first) > 3 {
		if second := share(); math.Abs(second) > 3 {
			t.Errorf("a share of 10 %% came out %.1f and then %.1f sigma away", first, second)
		}
	}
	r.must("DELETE", "/v1/config/service-splitter/api", "")
	r.await("the end of the splitter", func() bool {
		for range 30 {
			if _, body := r.get(port, "/"); body != "one" {
				return false
			}
		}
		return true
	})
}

// meshFailover: when the subset has no healthy instance, the next one serves.
func meshFailover(t *testing.T, r *meshRig) {
	port := r.port("to api")
	r.must("PUT", "/v1/config", fmt.Sprintf(subsets, `,"Failover":{"v1":{"ServiceSubset":"v2"}}`))
	r.must("PUT", "/v1/agent/check/fail/api-1-alive", "")
	r.await("the other subset to take over", func() bool { _, body := r.get(port, "/"); return body == "two" })
	r.must("PUT", "/v1/agent/check/pass/api-1-alive", "")
	r.await("the first subset to be back", func() bool { _, body := r.get(port, "/"); return body == "one" })
	// Its instances go on to serve until the chain that refers to the subset is another one.
	failover := func() bool { return strings.Contains(r.admin("web", "/clusters"), "failover-target~") }
	for range 4 {
		stop := r.load(port)
		r.must("DELETE", "/v1/config/service-resolver/api", "")
		r.await("a chain without subsets", func() bool { return !failover() })
		if sent, failed := stop(); len(failed) > 0 {
			t.Fatalf("%d of %d requests failed as the resolver went: %s", len(failed), sent, failed[:min(3, len(failed))])
		}
		stop = r.load(port)
		r.must("PUT", "/v1/config", fmt.Sprintf(subsets, `,"Failover":{"v1":{"ServiceSubset":"v2"}}`))
		r.await("the subsets", failover)
		if sent, failed := stop(); len(failed) > 0 {
			t.Fatalf("%d of %d requests failed as the resolver came: %s", len(failed), sent, failed[:min(3, len(failed))])
		}
	}
	r.must("DELETE", "/v1/config/service-resolver/api", "")
}

// load sends requests until stop is called, which returns how many there were and what failed.
func (r *meshRig) load(port int) (stop func() (sent int, failed []string)) {
	var mu sync.Mutex
	var sent int
	var failed []string
	end := make(chan struct{})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			pause := time.NewTicker(5 * time.Millisecond)
			defer pause.Stop()
			for {
				select {
				case <-end:
					return
				case <-pause.C:
				}
				begin := time.Now()
				status, body := r.get(port, "/")
				mu.Lock()
				sent++
				if status != http.StatusOK { // with its times: logs tell what happened then
					failed = append(failed, fmt.Sprintf("%s +%v: %d %.200s", begin.UTC().Format("15:04:05.000"),
						time.Since(begin).Round(time.Millisecond), status, body))
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, []string) {
		close(end)
		group.Wait()
		return sent, failed
	}
}

// serials are the numbers of the certificates that an Envoy has.
func (r *meshRig) serials(id string) string {
	var certs struct {
		Certificates []struct {
			Chain []struct {
				Serial string `json:"serial_number"`
			} `json:"cert_chain"`
		}
	}
	if err := json.Unmarshal([]byte(r.admin(id, "/certs")), &certs); err != nil {
		return ""
	}
	var list []string
	for _, c := range certs.Certificates {
		for _, one := range c.Chain {
			list = append(list, one.Serial)
		}
	}
	return strings.Join(list, " ")
}

// rotate makes another root, and waits until proxies have none of the certificates that they had.
func (r *meshRig) rotate(before map[string]string) {
	r.Helper()
	r.must("PUT", "/v1/connect/ca/configuration",
		`{"Provider":"consul","Config":{"LeafCertTTL":"72h","PrivateKeyType":"ec","PrivateKeyBits":384}}`)
	for id, old := range before {
		r.await("new certificates for "+id, func() bool {
			now := r.serials(id)
			for serial := range strings.FieldsSeq(old) {
				if strings.Contains(now, serial) {
					return false
				}
			}
			return now != ""
		})
	}
}

// meshRotation: another root, with new certificates everywhere, under load, without an error.
func meshRotation(t *testing.T, r *meshRig) {
	before := map[string]string{}
	for _, id := range []string{"api-1", "api-2", "web"} {
		r.await("the certificates of "+id, func() bool { before[id] = r.serials(id); return before[id] != "" })
	}
	stop := r.load(r.port("to api"))
	r.rotate(before)
	sent, failed := stop()
	if len(failed) > 0 || sent == 0 {
		t.Errorf("%d of %d requests failed during the rotation: %s", len(failed), sent, failed[:min(3, len(failed))])
	}
	t.Logf("%d requests during the rotation", sent)
}

// meshAlone: proxies serve while every Corbel process is down, and take up changes when it is back.
func meshAlone(t *testing.T, r *meshRig) {
	r.killDev()
	for range 50 {
		if status, body := r.get(r.port("to api"), "/"); status != http.StatusOK {
			t.Fatalf("without Corbel: %d %s", status, body)
		}
	}
	stop := r.load(r.port("to api"))
	r.startDev()
	r.synced(5)
	if sent, failed := stop(); len(failed) > 0 {
		t.Errorf("%d of %d requests failed while Corbel came back: %s", len(failed), sent, failed[:min(3, len(failed))])
	}
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`)
	r.await("a change after the restart", func() bool { return !echoed(r.port("to db")) })
}

// synced waits until so many proxies have acknowledged all that they shall have, and none ever refused anything.
func (r *meshRig) synced(want int) {
	r.Helper()
	var state struct {
		Proxies int
		States  map[string]int
		List    []struct {
			ID      string
			Refused int
			Refusal any
		}
	}
	r.await(fmt.Sprintf("%d synced proxies", want), func() bool {
		status, text := r.ask("GET", "/v1/internal/mesh/status?all", "")
		return status == http.StatusOK && json.Unmarshal([]byte(text), &state) == nil && state.States["synced"] == want &&
			state.Proxies == want
	})
	for _, p := range state.List {
		if p.Refused != 0 {
			r.Errorf("%s refused %d responses: %v", p.ID, p.Refused, p.Refusal)
		}
	}
}

// meshStatus: nothing was ever refused, by Corbel's count and by Envoy's; and the commands tell.
func meshStatus(t *testing.T, r *meshRig) {
	r.synced(5)
	for _, id := range []string{"api-1", "api-2", "db", "rpc", "web"} {
		for line := range strings.Lines(r.admin(id, "/stats?filter=update_rejected")) {
			if _, n, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && n != "0" {
				t.Errorf("%s: %s", id, strings.TrimSpace(line))
			}
		}
	}
	for want, args := range map[string][]string{
		"synced":        {"mesh", "status"},
		"local_app":     {"mesh", "proxy", "web"},
		"web":           {"mesh", "topology"},
		`"Allowed"`:     {"mesh", "topology", "--json"},
		`"States"`:      {"mesh", "status", "--json"},
		`"Details"`:     {"mesh", "proxy", "web-sidecar-proxy", "--json"},
		"web-sidecar-p": {"mesh", "status", "--all"},
	} {
		c := r.command(args...)
		c.Stdout = nil
		out, err := c.Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
