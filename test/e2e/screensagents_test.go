package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/test/fetch"
)

// meshOfAgents is a server and three agents, each with a service and a real Envoy beside it: web calls api, which calls
// db. The processes of the Envoys come by service.
func meshOfAgents(t *testing.T) (servers *meshRig, hosts map[string]*meshRig, envoys map[string]*exec.Cmd) {
	r := emptyMeshRig(t, fetch.Need(t, "envoy"))
	process := func(kind, name, extra string) *meshRig {
		r.runs(kind, name, fmt.Sprintf("node_name = %q\ndata_dir = %q\nbind_addr = \"127.0.0.1\"\nlog_level = \"warn\"\n"+
			"retry_join = [\"127.0.0.1:%d\"]\ntls { disabled = true }\nacl { enabled = false }\n%s\n", name,
			filepath.Join(r.dir, name), r.port("s1 gossip"), extra))
		c := *r
		c.all, c.dev, c.http = nil, nil, fmt.Sprintf("http://127.0.0.1:%d", r.port(name+" http"))
		return &c
	}
	servers = process("server", "s1", "bootstrap_expect = 1\nports { serf_wan = -1 }")
	servers.await("a leader", func() bool {
		status, body := servers.ask("GET", "/v1/status/leader", "")
		return status == http.StatusOK && strings.Contains(body, ":")
	})
	hosts, envoys = map[string]*meshRig{}, map[string]*exec.Cmd{}
	for i, service := range []string{"web", "api", "db"} {
		name := fmt.Sprintf("host-%d", i+1)
		grpc := r.port(name + " grpc")
		h := process("agent", name, fmt.Sprintf("ports { grpc = %d }", grpc))
		h.envoyArgs = []string{"--grpc-addr", fmt.Sprintf("127.0.0.1:%d", grpc)}
		h.await("the agent "+name, func() bool {
			status, _ := h.ask("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"Name":%q,"ID":"first"}`, service))
			return status == http.StatusOK
		})
		h.must("PUT", "/v1/agent/service/deregister/first", "")
		upstreams := map[string]map[string]int{"web": {"api": r.port("to api")}, "api": {"db": r.port("to db")}}
		h.service(service, service, "1", backend(t, service), upstreams[service])
		hosts[service] = h
	}
	for _, pair := range []string{"source=web&destination=api", "source=api&destination=db"} {
		servers.must("PUT", "/v1/connect/intentions/exact?"+pair, `{"Action":"allow"}`)
	}
	for service, h := range hosts {
		h.proxy(service)
		envoys[service] = h.all[0]
		r.all = append(r.all, h.all...)
	}
	servers.synced(3)
	return servers, hosts, envoys
}

// rowsOf are the rows of a table of the page, by its label: its cells joined by spaces.
func (v *viewer) rowsOf(label string) ([]string, error) {
	return evaluate[[]string](v, fmt.Sprintf(`[...document.querySelectorAll('[aria-label=%q] tr')].map(
		r => [...r.children].map(c => c.textContent.trim()).join(" "))`, label))
}

// row waits until a table has a row with all of some words.
func (v *viewer) row(label string, words ...string) {
	v.t.Helper()
	var rows []string
	polltest.NoError(v.t, polltest.Deadline, func() (err error) {
		if rows, err = v.rowsOf(label); err != nil {
			return err
		}
		for _, row := range rows {
			all := true
			for _, word := range words {
				all = all && strings.Contains(row, word)
			}
			if all {
				return nil
			}
		}
		return fmt.Errorf("no row of %s has %q: %q", label, words, rows)
	}, "a row of %s", label)
}

// TestScreensOverAgents: the proxies of all hosts are on the screens of the mesh, whichever process is looked at; an
// Envoy that stops is seen there, and seen again when it is back. Everything by keyboard.
func TestScreensOverAgents(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		loud.Skip(t, "the screens of the mesh over several agents: there is no chromium")
	}
	servers, hosts, envoys := meshOfAgents(t)
	reached := func() bool { status, _ := servers.get(servers.port("to api"), "/"); return status == http.StatusOK }
	servers.await("a request through two hosts' proxies", reached)

	v := view(t, servers.http)
	v.keys("gp")
	v.see("h1", "Propagation")
	v.see("main", "all 3 have what they shall have")
	for service, node := range map[string]string{"web": "host-1", "db": "host-3", "api": "host-2"} {
		v.keys("gt")
		v.row("Topology", "web", "api", "allowed", "1 synced")
		v.row("Topology", "api", "db", "allowed", "1 synced")
		v.run(chromedp.Focus(fmt.Sprintf(`[aria-label="Topology"] a[href$="s=%s"]`, service)))
		v.keys(kb.Enter)
		v.see("h1", service)
		v.row("Proxies", service+"-sidecar-proxy", node, "synced")
	}
	v.keys("gt")
	v.row("Topology", "web", "api", "allowed", "1 synced")
	v.axe("the topology over agents")

	// One Envoy stops: both screens say which, on which host, and the others stay.
	servers.interrupt(envoys["api"])
	v.row("Proxies", "api-sidecar-proxy", "host-2", "disconnected")
	v.row("Topology", "api", "db", "1 disconnected")
	v.row("Topology", "web", "api", "1 synced")
	v.axe("the topology with a proxy that stopped")
	v.shoot("topology-stopped")
	v.keys("gp")
	v.row("Proxies", "api-sidecar-proxy", "host-2", "disconnected")
	v.axe("propagation with a proxy that stopped")
	v.shoot("propagation-stopped")

	hosts["api"].all = nil
	hosts["api"].proxy("api")
	servers.all = append(servers.all, hosts["api"].all...)
	t.Cleanup(func() { servers.interrupt(hosts["api"].all[0]) })
	v.see("main", "all 3 have what they shall have")
	v.keys("gt")
	v.row("Topology", "api", "db", "1 synced")
	servers.await("a request through the Envoy that is back", reached)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
}
