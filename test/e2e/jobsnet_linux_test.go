package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/test/fetch"
)

// apartEnv tells a child process of the tests that it is in namespaces of its own, and where the binary is.
const apartEnv = "E2E_APART"

// apart runs the test that calls it once more, in a network and a view of files of its own: what a test does to the
// host's network then is nobody's affair. It reports whether this is that run.
func apart(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(apartEnv) != "" {
		return true
	}
	if err := netns.Available(); err != nil {
		loud.Skip(t, "networks of allocations: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), apartEnv+"="+binDir), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-24<<10):])
	}
	return false
}

// sh runs a shell's command line as root of this network.
func sh(t testing.TB, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// The host of these tests, a machine beside it in the network "outside", and the default bridge.
const (
	hostIP    = "192.0.2.2"
	outsideIP = "192.0.2.9"
)

// layCables makes that network.
func layCables(t testing.TB) {
	sh(t, `set -e
mount --make-rprivate /
mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns
ip link set lo up
ip netns add outside
ip link add host0 type veth peer name eth0 netns outside
ip addr add `+hostIP+`/24 dev host0; ip link set host0 up
ip -n outside addr add `+outsideIP+`/24 dev eth0; ip -n outside link set eth0 up; ip -n outside link set lo up
ip route add default via `+outsideIP)
}

// jobsRig is a corbel dev that runs jobs, in a network of its own.
type jobsRig struct {
	*meshRig
	jobs string // base URL of the API of jobs
}

func newJobsRig(t *testing.T, envoy, more string) *jobsRig {
	t.Helper()
	layCables(t)
	r := &jobsRig{meshRig: emptyMeshRig(t, envoy)}
	r.http = fmt.Sprintf("http://127.0.0.1:%d", r.port("http"))
	r.jobs = fmt.Sprintf("http://127.0.0.1:%d", r.port("jobs"))
	t.Setenv("NOMAD_ADDR", r.jobs)
	text := fmt.Sprintf("jobs {\n port = %d\n agent {\n  network_address = %q\n %s\n }\n}\n", r.port("jobs"), hostIP, more)
	if err := os.WriteFile(filepath.Join(r.dir, "dev.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// What tasks run is this binary, under the name of its command.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(r.dir, "netserver")); err != nil {
		t.Fatal(err)
	}
	r.start()
	return r
}

// await waits longer than others do: these tests start many processes on a machine that does much beside.
func (r *jobsRig) await(what string, cond func() bool) {
	r.Helper()
	polltest.Within(r, 5*time.Minute, cond, "%s", what)
}

func (r *jobsRig) start() {
	r.Helper()
	r.startDev()
	r.await("a node that is ready", func() bool { return strings.Contains(r.get("/v1/nodes"), `"Status":"ready"`) })
}

// get reads of the API of jobs; "" is no answer.
func (r *jobsRig) get(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.jobs+path, http.NoBody)
	if err != nil {
		r.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// corbel runs a command that has to succeed.
func (r *jobsRig) corbel(args ...string) string {
	r.Helper()
	c := r.command(args...)
	c.Stdout, c.Stderr = nil, nil
	out, err := c.CombinedOutput()
	if err != nil {
		r.Fatalf("corbel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// run registers a job and waits for its allocation to run; it returns the allocation.
func (r *jobsRig) run(name, text string) shownAlloc {
	r.Helper()
	file := filepath.Join(r.dir, name+".nomad.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	r.corbel("jobs", "run", "-detach", file)
	var a shownAlloc
	r.await("the job "+name+" runs", func() bool {
		a = r.alloc(name)
		return a.ClientStatus == "running" && len(a.TaskStates) > 0 && a.pending() == ""
	})
	return a
}

// shownAlloc is an allocation as the API shows it.
type shownAlloc struct {
	ID, ClientStatus string
	NetworkStatus    struct {
		InterfaceName, Address string
		DNS                    *struct{ Servers []string }
	}
	AllocatedResources struct {
		Shared struct {
			Ports []struct {
				Label, HostIP string
				Value, To     int
			}
		}
	}
	TaskStates map[string]struct {
		State  string
		Events []struct{ Type, DisplayMessage string }
	}
}

// pending is a task that does not run.
func (a *shownAlloc) pending() string {
	for name, s := range a.TaskStates {
		if s.State != "running" {
			return name
		}
	}
	return ""
}

func (a *shownAlloc) port(label string) int {
	for _, p := range a.AllocatedResources.Shared.Ports {
		if p.Label == label {
			return p.Value
		}
	}
	return 0
}

// alloc is the newest allocation of a job.
func (r *jobsRig) alloc(job string) (a shownAlloc) {
	var list []struct{ ID string }
	if json.Unmarshal([]byte(r.get("/v1/job/"+job+"/allocations")), &list) != nil || len(list) == 0 {
		return a
	}
	_ = json.Unmarshal([]byte(r.get("/v1/allocation/"+list[0].ID)), &a)
	return a
}

// stop stops a job and waits for the end of its allocations.
func (r *jobsRig) stop(job string) {
	r.Helper()
	r.corbel("jobs", "stop", "-detach", job)
	r.await("the job "+job+" is over", func() bool {
		a := r.alloc(job)
		return a.ClientStatus == "complete" || a.ClientStatus == "failed"
	})
}

// fetchFrom gets a URL from the machine outside, or with where "" from the host. Its answer is "" until there is one.
func fetchFrom(where, url string) string {
	args := []string{"netserver", "get", url}
	if where != "" {
		args = append([]string{"ip", "netns", "exec", where}, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// netserverMain is a server within a task, which says what it sees: netserver tcp:8080 udp:8080, or netserver get URL.
func netserverMain() {
	get := func(url string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	if len(os.Args) == 3 && os.Args[1] == "get" {
		text, err := get(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(text)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, os.Getenv(r.URL.Query().Get("name")))
	})
	mux.HandleFunc("/from", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		fmt.Fprint(w, name)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(r.URL.Query().Get("name"))
		fmt.Fprint(w, string(text), err)
	})
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		text, err := get(r.URL.Query().Get("url"))
		if err != nil {
			text = "error: " + err.Error()
		}
		fmt.Fprint(w, text)
	})
	for _, arg := range os.Args[1:] {
		kind, port, _ := strings.Cut(arg, ":")
		go func() {
			if kind == "udp" {
				echoDatagrams(":" + port)
				return
			}
			err := (&http.Server{Addr: ":" + port, Handler: mux, ReadHeaderTimeout: time.Minute}).ListenAndServe()
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}()
	}
	select {} // until it is killed
}

// echoDatagrams answers datagrams.
func echoDatagrams(addr string) {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b := make([]byte, 1<<10)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(append([]byte("echo "), b[:n]...), from)
	}
}

const bridgeJob = `
job "web" {
  group "g" {
    network {
      mode     = "bridge"
      hostname = "web-${NOMAD_ALLOC_INDEX}"
      dns {
        servers  = ["192.0.2.53"]
        searches = ["corp.example"]
      }
      port "http" {
        to = 8080
      }
      port "fixed" {
        static = 18080
        to     = 8081
      }
      port "same" {}
    }
    service {
      name     = "web"
      provider = "consul"
      port     = "http"
      check {
        type     = "http"
        path     = "/from"
        interval = "1s"
        timeout  = "5s"
      }
    }
    service {
      name         = "web-inside"
      provider     = "consul"
      port         = "http"
      address_mode = "alloc"
      check {
        type         = "tcp"
        address_mode = "alloc"
        port         = "http"
        interval     = "1s"
        timeout      = "5s"
      }
    }
    task "server" {
      driver = "raw_exec"
      config {
        command = "DIR/netserver"
        args    = ["tcp:8080", "tcp:8081", "udp:8081", "tcp:${NOMAD_PORT_same}"]
      }
    }
    task "beside" {
      driver = "exec"
      config {
        command = "/bin/bash"
        args = ["-c", <<EOT
hostname; cat /etc/resolv.conf /etc/hosts
until exec 3<>/dev/tcp/127.0.0.1/8080; do sleep 0.2; done
printf 'GET /hostname HTTP/1.0\r\n\r\n' >&3; cat <&3; echo; echo end
exec sleep 100000
EOT
        ]
      }
    }
  }
}
`

// TestJobsBridge: an allocation with a network of its own, as its tasks, the host, another machine and other
// allocations see it; over a kill -9 of the agent; and nothing of it when it is over.
func TestJobsBridge(t *testing.T) {
	if !apart(t) {
		return
	}
	r := newJobsRig(t, "", "bridge_network_hairpin_mode = true")
	t.Setenv("PATH", r.dir+":"+os.Getenv("PATH"))
	before := sh(t, "ip -o link; nft list ruleset")
	a := r.run("web", strings.ReplaceAll(bridgeJob, "DIR", r.dir))
	ip, port, same := a.NetworkStatus.Address, a.port("http"), a.port("same")
	if !strings.HasPrefix(ip, "172.26.") || a.NetworkStatus.InterfaceName != "eth0" || port == 0 ||
		a.NetworkStatus.DNS == nil || a.NetworkStatus.DNS.Servers[0] != "192.0.2.53" {
		t.Fatalf("%+v", a)
	}
	at := func(port int, path string) string { return fmt.Sprintf("http://%s:%d%s", hostIP, port, path) }
	// got asks until there is the answer that is wanted.
	got := func(where, url, want string) {
		t.Helper()
		re, last := regexp.MustCompile("^(?:"+want+")$"), ""
		r.await(fmt.Sprintf("%s from %q is %s", url, where, want), func() bool {
			last = fetchFrom(where, url)
			return re.MatchString(last)
		})
	}
	got("", at(port, "/hostname"), "web-0")
	got("outside", at(port, "/from"), outsideIP+`:\d+`)
	got("outside", at(18080, "/hostname"), "web-0")
	got("outside", at(same, "/hostname"), "web-0")
	got("", fmt.Sprintf("http://%s:8080/hostname", ip), "web-0")
	for name, want := range map[string]string{"NOMAD_IP_http": hostIP, "NOMAD_PORT_http": "8080",
		"NOMAD_ALLOC_IP_http":  ip,
		"NOMAD_ADDR_http":      fmt.Sprintf("%s:%d", hostIP, port),
		"NOMAD_HOST_PORT_http": fmt.Sprint(port), "NOMAD_HOST_ADDR_http": fmt.Sprintf("%s:%d", hostIP, port),
		"NOMAD_ALLOC_PORT_http": "8080", "NOMAD_ALLOC_ADDR_http": ip + ":8080", "NOMAD_ALLOC_INTERFACE_http": "eth0",
		"NOMAD_PORT_same": fmt.Sprint(same), "NOMAD_HOST_PORT_fixed": "18080", "NOMAD_PORT_fixed": "8081"} {
		got("", at(port, "/env?name="+name), regexp.QuoteMeta(want))
	}
	got("", at(port, "/file?name=/etc/resolv.conf"), `nameserver 192.0.2.53\nsearch corp.example\n(?s:.*)<nil>`)
	// What goes out is seen with the host's address; a group reaches itself by the host's, which takes hairpin mode.
	outside := exec.Command("ip", "netns", "exec", "outside", filepath.Join(r.dir, "netserver"), "tcp:9000")
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	r.all = append(r.all, outside)
	got("", at(port, "/get?url=http://"+outsideIP+":9000/from"), regexp.QuoteMeta(hostIP)+`:\d+`)
	got("", at(port, "/get?url="+at(port, "/from")), `172\.26\.64\.1:\d+`)
	// The host's loopback is not theirs.
	got("", at(port, "/get?url="+r.http+"/v1/status/leader"), `error: .*`)
	got("", at(port, "/get?url="+strings.Replace(r.http, "127.0.0.1", "172.26.64.1", 1)+"/v1/status/leader"), `error: .*`)
	r.await("a datagram comes back", func() bool {
		out, err := exec.Command("ip", "netns", "exec", "outside", "bash", "-c", "exec 3<>/dev/udp/"+hostIP+
			"/18080; echo hello >&3; timeout 2 head -n 1 <&3").Output()
		return err == nil && string(out) == "echo hello\n"
	})
	var text []byte
	defer func() {
		if t.Failed() {
			t.Logf("the task beside saw: %s", text)
		}
	}()
	r.await("what the task beside it sees", func() bool {
		out := r.command("allocs", "logs", a.ID, "beside")
		out.Stdout = nil
		var err error
		text, err = out.Output()
		return err == nil && strings.HasPrefix(string(text), "web-0\nnameserver 192.0.2.53\nsearch corp.example\n") &&
			strings.Contains(string(text), ip+" web-0\n") && strings.HasSuffix(string(text), "\r\n\r\nweb-0\nend\n")
	})
	for _, task := range []string{"server", "beside"} {
		if out := r.corbel("allocs", "exec", "-t=false", "-task", task, a.ID, "hostname"); out != "web-0\n" {
			t.Errorf("exec in %s: %q", task, out)
		}
		if out := r.corbel("allocs", "exec", "-t=false", "-task", task, a.ID, "cat", "/proc/net/dev"); strings.Contains(out,
			"host0:") || !strings.Contains(out, "eth0:") {
			t.Errorf("exec in %s: %s", task, out)
		}
	}
	r.await("both services pass", func() bool {
		for name, want := range map[string]string{"web": fmt.Sprintf(`"Address":"%s"[^}]*"Port":%d`, hostIP, port),
			"web-inside": fmt.Sprintf(`"Address":"%s"[^}]*"Port":8080`, ip)} {
			_, text := r.ask(http.MethodGet, "/v1/health/service/"+name+"?passing", "")
			var list []struct{ Service json.RawMessage }
			if json.Unmarshal([]byte(text), &list) != nil || len(list) != 1 {
				return false
			}
			var s struct {
				Address string
				Port    int
			}
			if json.Unmarshal(list[0].Service, &s) != nil ||
				!regexp.MustCompile(want).MatchString(fmt.Sprintf(`"Address":"%s","Port":%d`, s.Address, s.Port)) {
				return false
			}
		}
		return true
	})
	counted := func() uint64 {
		var s struct {
			NetworkStats struct{ RxBytes, TxBytes uint64 }
		}
		_ = json.Unmarshal([]byte(r.get("/v1/client/allocation/"+a.ID+"/stats")), &s)
		return min(s.NetworkStats.RxBytes, s.NetworkStats.TxBytes)
	}
	if counted() == 0 {
		t.Error("no counters in ", r.get("/v1/client/allocation/"+a.ID+"/stats"))
	}

	// The agent dies: tasks, namespace, address and ports stay.
	space := sh(t, "ls -i /run/netns/"+a.ID)
	pid := r.corbel("allocs", "exec", "-t=false", "-task", "server", a.ID, "sh", "-c", "pgrep -f '[n]etserver tcp:8080'")
	r.killDev()
	got("outside", at(port, "/hostname"), "web-0")
	r.start()
	r.await("the allocation runs on", func() bool { return r.alloc("web").ClientStatus == "running" })
	r.await("its tasks answer", func() bool {
		c := r.command("allocs", "exec", "-t=false", "-task", "server", a.ID, "sh", "-c", "pgrep -f '[n]etserver tcp:8080'")
		c.Stdout = nil
		out, err := c.Output()
		return err == nil && string(out) == pid
	})
	if again := sh(t, "ls -i /run/netns/"+a.ID); again != space {
		t.Errorf("another namespace: %s, %s", space, again)
	}
	if b := r.alloc("web"); b.ID != a.ID || b.NetworkStatus.Address != ip {
		t.Errorf("%+v", b.NetworkStatus)
	}
	got("outside", at(port, "/from"), outsideIP+`:\d+`)
	// Somebody flushes all rules: they come back.
	sh(t, "nft flush ruleset")
	got("outside", at(18080, "/hostname"), "web-0")

	// A second one gets another address, and reaches the first by the host's.
	b := r.run("other", strings.NewReplacer("DIR", r.dir, `"web`, `"other`, "18080", "18090").Replace(bridgeJob))
	if b.NetworkStatus.Address == ip {
		t.Error("two allocations have one address")
	}
	got("", at(b.port("http"), "/get?url="+at(port, "/hostname")), "web-0")
	got("", at(b.port("http"), "/get?url=http://"+ip+":8080/from"), regexp.QuoteMeta(b.NetworkStatus.Address)+`:\d+`)

	r.stop("web")
	if text := sh(t, "nft list ruleset"); strings.Contains(text, ip+" ") ||
		!strings.Contains(text, b.NetworkStatus.Address) {
		t.Error("rules of what is over, or none of what is not: ", text)
	}
	r.stop("other")
	r.await("nothing is left", func() bool { return sh(t, "ip -o link; nft list ruleset") == before })
	if text := sh(t, "ls /run/netns; ls "+r.dir+"/data/jobs/state/networks"); text != "outside\n" {
		t.Errorf("left: %q", text)
	}
}

const noneJob = `
job "alone" {
  group "g" {
    network {
      mode = "none"
    }
    task "server" {
      driver = "raw_exec"
      config {
        command = "/bin/bash"
        args    = ["-c", "cat /proc/net/dev | grep -c :; exec sleep 100000"]
      }
    }
  }
}
`

// TestJobsNone: a network without a way out; and one that a node that died leaves behind is swept.
func TestJobsNone(t *testing.T) {
	if !apart(t) {
		return
	}
	r := newJobsRig(t, "", "")
	a := r.run("alone", noneJob)
	r.await("one interface", func() bool { return r.corbel("allocs", "logs", a.ID, "server") == "1\n" })
	r.killDev()
	sh(t, "pkill -f '[s]leep 100000' || true") // as after a restart of the host
	sh(t, "mkdir -p "+r.dir+"/data/jobs/state/networks/gone && ip netns add gone && echo '"+
		`{"Alloc":"gone","Mode":"none","Path":"/run/netns/gone"}`+"' > "+r.dir+"/data/jobs/state/networks/gone/network.json")
	r.start()
	r.await("what nobody has is gone", func() bool { return !strings.Contains(sh(t, "ls /run/netns"), "gone") })
	r.stop("alone")
	r.await("nothing is left", func() bool {
		return sh(t, "ls /run/netns; ls "+r.dir+"/data/jobs/state/networks") == "outside\n"
	})
}

const cniJob = `
job "plugged" {
  group "g" {
    network {
      mode = "cni/mynet"
      port "http" {
        to = 8080
      }
      cni {
        args = {
          COLOUR = "red"
        }
      }
    }
    task "server" {
      driver = "raw_exec"
      config {
        command = "DIR/netserver"
        args    = ["tcp:8080"]
      }
    }
  }
}
`

// cniPath is where the machine has CNI plug-ins.
func cniPath(t *testing.T) string {
	for _, dir := range []string{os.Getenv("E2E_CNI"), "/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "host-local")); dir != "" && err == nil {
			return dir
		}
	}
	loud.Skip(t, "networks of CNI plug-ins: neither /usr/lib/cni nor /opt/cni/bin has them (Debian's package is "+
		"containernetworking-plugins)")
	return ""
}

// TestJobsCNI: an allocation that real CNI plug-ins connect, over a kill -9 of the agent, to its end.
func TestJobsCNI(t *testing.T) {
	plugins := cniPath(t)
	if !apart(t, "E2E_CNI="+plugins) {
		return
	}
	etc := t.TempDir()
	list := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"mynet","plugins":[{"type":"bridge","bridge":"cni7","isGateway":true,
 "ipam":{"type":"host-local","subnet":"10.88.0.0/24","routes":[{"dst":"0.0.0.0/0"}],"dataDir":%q}}]}`, etc+"/leases")
	if err := os.WriteFile(etc+"/mynet.conflist", []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newJobsRig(t, "", fmt.Sprintf("cni_path = %q\n cni_config_dir = %q\n publish_allocation_metrics = true", plugins,
		etc))
	t.Setenv("PATH", r.dir+":"+os.Getenv("PATH"))
	if text := r.get("/v1/nodes?resources=true"); !strings.Contains(text, `"Mode":"cni/mynet"`) {
		t.Error("the node does not offer the network: ", text)
	}
	a := r.run("plugged", strings.ReplaceAll(cniJob, "DIR", r.dir))
	ip := a.NetworkStatus.Address
	if !strings.HasPrefix(ip, "10.88.0.") {
		t.Fatalf("%+v", a.NetworkStatus)
	}
	answers := func() bool { return fetchFrom("", "http://"+ip+":8080/env?name=NOMAD_ALLOC_ADDR_http") == ip+":8080" }
	r.await("it answers", answers)
	r.await("metrics of its network", func() bool {
		_, text := r.ask(http.MethodGet, "/v1/agent/metrics?format=prometheus", "")
		return regexp.MustCompile(`client_allocs_network_rx_bytes{alloc_id="` + a.ID + `"`).MatchString(text)
	})
	r.killDev()
	r.start()
	r.await("the allocation runs on", func() bool { return r.alloc("plugged").ClientStatus == "running" })
	r.await("it answers as before", answers)
	file := filepath.Join(r.dir, "lost.nomad.hcl")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("DIR", r.dir, "cni/mynet", "cni/lost", "plugged", "lost").
		Replace(cniJob)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.corbel("jobs", "run", "-detach", file)
	r.await("a network that nobody has is named", func() bool {
		c := r.command("jobs", "why", "lost")
		c.Stdout = nil
		out, _ := c.Output()
		return strings.Contains(string(out), "missing network")
	})
	r.stop("plugged")
	r.await("nothing is left", func() bool {
		return sh(t, "ip -o link show type veth | grep -v host0 || true; ls /run/netns; ls "+etc+
			"/leases/mynet | grep ^10 || true") == "outside\n"
	})
}

const connectJob = `
job "mesh" {
  group "api" {
    network {
      mode = "bridge"
    }
    service {
      name = "api"
      port = "9001"
      connect {
        sidecar_service {}
      }
    }
    task "api" {
      driver = "raw_exec"
      config {
        command = "DIR/netserver"
        args    = ["tcp:9001"]
      }
      env {
        WHO = "api"
      }
    }
  }
  group "web" {
    network {
      mode = "bridge"
      port "http" {
        to = 9001
      }
    }
    service {
      name = "web"
      port = "http"
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "api"
              local_bind_port  = 8080
            }
          }
        }
      }
    }
    task "web" {
      driver = "raw_exec"
      config {
        command = "DIR/netserver"
        args    = ["tcp:9001"]
      }
    }
  }
}
`

// TestJobsConnect: two groups with the same ports inside talk through real Envoys in their own networks, also after
// the agent was killed.
func TestJobsConnect(t *testing.T) {
	const key = "E2E_ENVOY"
	envoy := os.Getenv(key)
	if envoy == "" {
		envoy = fetch.Need(t, fetch.Envoys[0])
	}
	if !apart(t, key+"="+envoy) {
		return
	}
	r := newJobsRig(t, envoy, fmt.Sprintf("meta {\n \"connect.envoy_binary\" = %q\n }", envoy))
	t.Setenv("PATH", r.dir+":"+os.Getenv("PATH"))
	file := filepath.Join(r.dir, "mesh.nomad.hcl")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(connectJob, "DIR", r.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.corbel("jobs", "run", "-detach", file)
	at := 0 // web's port on the host
	through := func() bool {
		return at > 0 && fetchFrom("outside", fmt.Sprintf("http://%s:%d/get?url=http://127.0.0.1:8080/env?name=WHO", hostIP,
			at)) == "api"
	}
	r.await("web runs", func() bool {
		var list []struct{ ID, TaskGroup, ClientStatus string }
		_ = json.Unmarshal([]byte(r.get("/v1/job/mesh/allocations")), &list)
		for _, a := range list {
			if a.TaskGroup != "web" || a.ClientStatus != "running" {
				continue
			}
			var shown shownAlloc
			_ = json.Unmarshal([]byte(r.get("/v1/allocation/"+a.ID)), &shown)
			at = shown.port("http")
		}
		return at > 0
	})
	r.await("web reaches api through the mesh", through)
	var sidecar []struct {
		Service struct {
			Address string
			Port    int
			Proxy   struct {
				LocalServiceAddress string
				LocalServicePort    int
				Config              map[string]any
			}
		}
	}
	r.await("the sidecar of api passes", func() bool {
		_, text := r.ask(http.MethodGet, "/v1/health/connect/api?passing", "")
		return json.Unmarshal([]byte(text), &sidecar) == nil && len(sidecar) == 1
	})
	if s := sidecar[0].Service; s.Address != hostIP || s.Port < 20000 || s.Proxy.LocalServiceAddress != "127.0.0.1" ||
		s.Proxy.LocalServicePort != 9001 || s.Proxy.Config["bind_address"] != "0.0.0.0" {
		t.Errorf("%+v", s)
	}
	r.killDev()
	if !through() {
		t.Error("the mesh ended with the agent")
	}
	r.start()
	r.await("web reaches api as before", through)
	// Proxies hear of changes again: an intention takes the way away, and gives it back.
	rule := `{"Kind":"service-intentions","Name":"api","Sources":[{"Name":"%s","Action":"%s"}]}`
	r.must(http.MethodPut, "/v1/config", fmt.Sprintf(rule, "*", "deny"))
	r.await("the way is closed", func() bool { return !through() })
	r.must(http.MethodPut, "/v1/config", fmt.Sprintf(rule, "web", "allow"))
	r.await("the way is open", through)
	r.corbel("jobs", "stop", "-detach", "mesh")
	r.await("nothing is left", func() bool {
		return !strings.Contains(sh(t, "ip -o link; nft list ruleset; ls /run/netns"), "nomad") &&
			strings.TrimSpace(sh(t, "ls /run/netns")) == "outside"
	})
}
