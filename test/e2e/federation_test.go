//go:build unix

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
)

// passwordHash is bcrypt's of "a long password": users are replicated with it.
const passwordHash = "$2b$12$.6D3rTMnEe8gM0zWDVwPLe8eiLe/tSjjIyxLmz1NdCRSaoUksRlF6"

// tokenKey makes the key that the clusters sign access tokens with, and gives the block of the monitor plane for it.
func tokenKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"key.pem": {Type: "EC PRIVATE KEY", Bytes: private},
		"public.pem": {Type: "PUBLIC KEY", Bytes: public}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("monitor {\n jwt_private_key_file = %q\n jwt_public_key_file = %q\n}\n",
		filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem"))
}

// startDatacenter starts dev as a datacenter of its own.
func startDatacenter(t *testing.T, name string, ports []int, more string) (base string, p *os.Process) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir, "corbel"), "dev", "--log-level", "error", "--node", "host-"+name,
		"--http-port", strconv.Itoa(ports[0]), "--dns-port", "-1", "--server-port", strconv.Itoa(ports[1]),
		"--serf-lan-port", strconv.Itoa(ports[2]), "--hcl", fmt.Sprintf(
			"datacenter = %q\njobs { enabled = false }\nports { secrets = -1, monitor = %d, monitor_agents = %d, "+
				"serf_wan = %d, grpc = -1, grpc_tls = -1 }\n%s", name, ports[3], ports[4], ports[5], more))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, out.Bytes())
		}
	})
	base = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	polltest.NoError(t, time.Minute, func() error {
		_, err := ask(base, http.MethodGet, "/ui/api/topic/incidents", "")
		return err
	}, "%s", name)
	polltest.NoError(t, time.Minute, func() error {
		_, err := ask(base, http.MethodPut, "/ui/api/as/monitor/api/core/v2/users/ann",
			`{"username":"ann","password_hash":"`+passwordHash+`","groups":["cluster-admins"]}`)
		return err
	}, "a user of %s", name)
	return base, cmd.Process
}

// TestFederationInTheBrowser: two clusters in one view, by keyboard alone; one that freezes is marked and holds up
// nothing, and is well again when it goes on.
func TestFederationInTheBrowser(t *testing.T) {
	ports, err := testport.Free(12)
	if err != nil {
		t.Fatal(err)
	}
	key := tokenKey(t)
	near, _ := startDatacenter(t, "dc1", ports[:6], key)
	far, frozen := startDatacenter(t, "dc2", ports[6:], key+
		fmt.Sprintf("retry_join_wan = [\"127.0.0.1:%d\"]\n", ports[5]))
	for _, w := range [][4]string{
		{far, "PUT", "/v1/catalog/register", `{"Node":"far-node","Address":"10.0.0.1","Service":{"ID":"billing",` +
			`"Service":"billing"},"Check":{"CheckID":"c","Name":"http","ServiceID":"billing","Status":"critical",` +
			`"Output":"connection refused"}}`},
		{far, "PUT", "/ui/api/as/monitor/api/core/v2/namespaces/default/events/far-host/disk", `{"entity":{` +
			`"entity_class":"proxy","metadata":{"name":"far-host","namespace":"default"}},"check":{"metadata":{` +
			`"name":"disk","namespace":"default"},"status":2,"interval":60,"output":"96 % full"}}`},
		{near, "POST", "/ui/api/as/monitor/api/enterprise/federation/v1/clusters", `{"type":"Cluster",` +
			`"api_version":"federation/v1","metadata":{"name":"second"},"spec":{"api_urls":["http://127.0.0.1:` +
			strconv.Itoa(ports[9]) + `"]}}`},
	} {
		polltest.NoError(t, time.Minute, func() error {
			_, err := ask(w[0], w[1], w[2], w[3])
			return err
		}, "%s", w[2])
	}
	polltest.Until(t, func() bool {
		text, err := ask(near, "GET", "/v1/catalog/nodes?dc=dc2", "")
		return err == nil && strings.Contains(text, "far-node")
	}, "the way to dc2")

	v := view(t, near)
	v.run(chromedp.Navigate(near + "/ui/login"))
	v.see("h1", "Log in")
	v.run(chromedp.Focus("input[name=user]"))
	v.keys("ann" + kb.Tab + "a long password" + kb.Enter)
	v.see(".foot", "ann")
	v.keys("gf")
	v.see("[aria-label=Datacenters] tr:nth-child(2)", "dc2")
	v.see("[aria-label=Datacenters] tr:nth-child(2)", "answers")
	v.see(".grid", "connection refused")
	v.see("[aria-label='Clusters of the monitor'] tr:nth-child(2)", "second")
	v.see(".row", "96 % full")
	v.axe("federation")
	v.keys("/" + kb.Backspace) // what moves the focus is typed too, here
	const none = "-cluster:second"
	v.keys(none)
	v.see(".empty", "Nothing matches this filter.")
	v.keys(strings.Repeat(kb.Backspace, len(none)) + "far")
	v.see(".row", "96 % full")
	v.keys(kb.Escape)
	v.silencesElsewhere(far)
	v.run(chromedp.Focus("button[aria-pressed=false]:not(.foot button)"))
	v.keys(kb.Enter)
	v.see(".row", "proxy")
	if at, err := evaluate[string](v, "location.search"); err != nil || !strings.Contains(at, "of=entities") {
		t.Errorf("the address is %q, %v", at, err)
	}

	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	v.see("[aria-label=Datacenters] tr:nth-child(2)", "unreachable: ")
	v.see("[aria-label='Clusters of the monitor'] tr:nth-child(2)", "unreachable: ")
	v.see("[aria-label=Datacenters] tr:nth-child(2)", "shown as of")
	v.see("[aria-label=Datacenters] tr:nth-child(1)", "answers")
	v.see(".title .age", "as of ")
	v.see(".row", "far-host") // as it was
	v.axe("federation, one frozen")
	v.shoot("federation-frozen")
	v.keys("gs")
	v.see(".row", "consul")
	v.keys("go")
	v.see(".planes", "unreachable: dc2")
	v.keys("gf")
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	v.see("[aria-label=Datacenters] tr:nth-child(2)", "answers")
	v.see("[aria-label='Clusters of the monitor'] tr:nth-child(2)", "answers")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
}

// silencesElsewhere silences what fails in another cluster, by keyboard, and tries what else could be written there.
func (v *viewer) silencesElsewhere(far string) {
	v.t.Helper()
	v.keys("j")
	v.keys("s")
	v.see("dialog:focus-within", "Matches 1 now")
	v.see("dialog:focus-within", "It is written in the cluster second")
	v.axe("a silence of another cluster")
	v.keys(kb.Tab + kb.Tab + kb.Tab + kb.Enter)
	v.see("dialog:focus-within .curl", "silenced")
	v.keys(kb.Enter)
	polltest.Until(v.t, func() bool {
		text, err := ask(far, "GET", "/ui/api/topic/silences", "")
		return err == nil && strings.Contains(text, "entity:far-host:disk") && strings.Contains(text, `"creator":"ann"`)
	}, "the silence in the other cluster")
	polltest.Until(v.t, func() bool { // until then nothing behind it takes the focus
		gone, err := evaluate[bool](v, "!document.querySelector('dialog')")
		return err == nil && gone
	}, "the dialog's end")
	for path, want := range map[string]string{
		"second/api/core/v2/namespaces/default/silenced/a%2f..%2fb/x": "silences alone",
		"second/api/core/v2/namespaces/default/handlers/h":            "silences alone",
		"second/api/core/v2/users/ann":                                "silences alone",
		"third/api/core/v2/namespaces/default/silenced/entity:a:b":    "no cluster",
	} {
		if _, err := ask(v.base, "PUT", "/ui/api/as/elsewhere/"+path, "{}"); err == nil ||
			!strings.Contains(err.Error(), want) {
			v.t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
