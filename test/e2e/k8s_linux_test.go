package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/k8s/gatewayapi"
	"corbel.dev/corbel/k8s/kubetest"
	"corbel.dev/corbel/kit/polltest"
)

// lines are what a process says.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startProcess runs the binary until the test ends.
func startProcess(t *testing.T, args ...string) (*exec.Cmd, *lines) {
	t.Helper()
	var said lines
	cmd := exec.Command(filepath.Join(binDir, "corbel"), args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("corbel %s:\n%s", args[0], said.String())
		}
	})
	return cmd, &said
}

// devAt starts a whole cluster in a process and returns its address.
func devAt(t *testing.T, hcl string) string {
	t.Helper()
	var ports [6]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"dev", "--log-level", "error", "--data-dir", t.TempDir(), "--http-port", strconv.Itoa(ports[0]),
		"--dns-port", "-1", "--server-port", strconv.Itoa(ports[1]), "--serf-lan-port", strconv.Itoa(ports[2]), "--hcl",
		fmt.Sprintf("jobs { port = 0 }\nports { secrets = %d, monitor = %d, monitor_agents = %d, serf_wan = -1, grpc = -1, "+
			"grpc_tls = -1 }\n", ports[3], ports[4], ports[5]) + hcl}
	addr := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	startProcess(t, args...)
	polltest.Within(t, time.Minute, func() bool {
		resp, err := http.Get(addr + "/v1/catalog/nodes?consistent")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "corbel dev to be ready")
	return addr
}

// healthy are the instances of a service as address:port status.
func healthy(t *testing.T, addr, service string) string {
	t.Helper()
	resp, err := http.Get(addr + "/v1/health/service/" + service)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []struct {
		Service struct {
			Address string
			Port    int
		}
		Checks []struct{ Status, Type string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		for _, c := range e.Checks {
			if c.Type == "kubernetes-readiness" {
				out = append(out, fmt.Sprintf("%s:%d %s", e.Service.Address, e.Service.Port, c.Status))
			}
		}
	}
	return strings.Join(out, ", ")
}

func endpoints(s *kubetest.Server, pods ...string) {
	var list []kubetest.Object
	for _, pod := range pods {
		address, unready := strings.CutSuffix(pod, "!")
		list = append(list, kubetest.Object{"addresses": []string{address}, "nodeName": "n1",
			"conditions": kubetest.Object{"ready": !unready}})
	}
	s.Put("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", kubetest.Object{"metadata": kubetest.Object{
		"name": "web-abc", "namespace": "shop", "labels": kubetest.Object{"kubernetes.io/service-name": "web"}},
		"addressType": "IPv4", "ports": []kubetest.Object{{"name": "http", "port": 8080}}, "endpoints": list})
}

func put(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT %s: %s", url, resp.Status)
	}
}

// A cluster's services and their pods appear in the catalog and change with it, what somebody removes comes back,
// and the catalog's services appear in the cluster.
func TestKubernetesSync(t *testing.T) {
	t.Parallel()
	addr, kube := devAt(t, ""), kubetest.New(t)
	service := func(name, annotations string) {
		var o kubetest.Object
		if err := json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","annotations":{%s}},
"spec":{"type":"ClusterIP","ports":[{"name":"http","port":80}]}}`, name, annotations), &o); err != nil {
			t.Fatal(err)
		}
		kube.Put("/api/v1/namespaces/shop/services", o)
	}
	service("web", "")
	endpoints(kube, "10.0.0.1", "10.0.0.2!")
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	probe := fmt.Sprintf("127.0.0.1:%d", port)
	_, said := startProcess(t, "k8s", "sync-catalog", "--http-addr", addr, "--kube-api", kube.URL,
		"--k8s-write-namespace", "corbel", "--health-addr", probe, "--gateways")
	shows := func(name, want string) {
		t.Helper()
		polltest.Within(t, time.Minute, func() bool { return healthy(t, addr, name) == want }, "%s to be %q", name, want)
	}
	shows("web", "10.0.0.1:8080 passing, 10.0.0.2:8080 critical")
	endpoints(kube, "10.0.0.3", "10.0.0.2")
	shows("web", "10.0.0.3:8080 passing, 10.0.0.2:8080 passing")

	// The API server was away, and forgot.
	kube.Compact()
	endpoints(kube, "10.0.0.2")
	kube.EndWatches()
	shows("web", "10.0.0.2:8080 passing")

	// Somebody else removes the node.
	put(t, addr+"/v1/catalog/deregister", `{"Node":"k8s-sync"}`)
	shows("web", "10.0.0.2:8080 passing")

	// Services of the catalog, and none that came from the cluster.
	put(t, addr+"/v1/catalog/register", `{"Node":"vm","Address":"10.9.9.9","Service":{"Service":"db","Port":5432}}`)
	polltest.Within(t, time.Minute, func() bool {
		o := kube.Object("/api/v1/namespaces/corbel/services/db")
		return o != nil && o["spec"].(map[string]any)["externalName"] == "db.service.consul"
	}, "the cluster to have db")
	if kube.Object("/api/v1/namespaces/corbel/services/web") != nil {
		t.Error("a service of the cluster came back to it")
	}
	put(t, addr+"/v1/catalog/deregister", `{"Node":"vm"}`)
	polltest.Within(t, time.Minute, func() bool { return kube.Object("/api/v1/namespaces/corbel/services/db") == nil },
		"db to be gone")
	gatewayOf(t, addr, kube)
	service("web", `"consul.hashicorp.com/service-sync":"false"`)
	shows("web", "")
	for path, code := range map[string]int{"ready": 200, "live": 200} {
		resp, err := http.Get("http://" + probe + "/health/" + path)
		if err != nil || resp.StatusCode != code {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		_ = resp.Body.Close()
	}
	if strings.Contains(said.String(), "level=ERROR") {
		t.Error(said.String())
	}
}

// gatewayOf makes a gateway with a route in the cluster, and sees both become config entries, with a status; and go.
func gatewayOf(t *testing.T, addr string, kube *kubetest.Server) {
	t.Helper()
	const api = "/apis/gateway.networking.k8s.io/v1"
	put(t, addr+"/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`)
	object := func(collection, text string) {
		var o kubetest.Object
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		kube.Put(api+collection, o)
	}
	object("/gatewayclasses", `{"metadata":{"name":"consul"},"spec":{"controllerName":"`+gatewayapi.Controller+`"}}`)
	object("/namespaces/shop/gateways", `{"metadata":{"name":"edge","namespace":"shop"},"spec":{"gatewayClassName":"consul",
"listeners":[{"name":"http","port":8080,"protocol":"HTTP"}]}}`)
	object("/namespaces/shop/httproutes", `{"metadata":{"name":"web","namespace":"shop"},"spec":{"parentRefs":[{"name":"edge"}],
"rules":[{"backendRefs":[{"name":"web","port":80}]}]}}`)
	there := func(path string) bool {
		resp, err := http.Get(addr + "/v1/config/" + path)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	polltest.Within(t, time.Minute, func() bool { return there("api-gateway/edge") && there("http-route/web") },
		"the gateway and its route to be entries")
	polltest.Within(t, time.Minute, func() bool {
		text, err := json.Marshal([]kubetest.Object{kube.Object(api + "/namespaces/shop/gateways/edge"),
			kube.Object(api + "/namespaces/shop/httproutes/web"), kube.Object(api + "/gatewayclasses/consul")})
		return err == nil && strings.Count(string(text), `"status":"True"`) == 8
	}, "all conditions to be true")
	kube.Delete(api + "/namespaces/shop/httproutes/web")
	kube.Delete(api + "/namespaces/shop/gateways/edge")
	polltest.Within(t, time.Minute, func() bool { return !there("api-gateway/edge") && !there("http-route/web") },
		"the entries to be gone")
}
