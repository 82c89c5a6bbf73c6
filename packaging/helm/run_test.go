//go:build helm

package helm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
)

// podSpec is what of a pod's template is needed to run it.
type podSpec struct {
	SecurityContext struct{ RunAsUser, RunAsGroup int }
	Containers      []struct {
		Args         []string
		Env          []struct{ Name string }
		StartupProbe struct{ Exec struct{ Command []string } }
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool
		}
	}
	Volumes []volume
}

type volume struct {
	Name      string
	ConfigMap *struct{ Name string }
	Secret    *struct {
		SecretName string
		Optional   bool
		Items      []struct{ Key, Path string }
	}
}

// fleet is the pods of a rendered chart: each a network namespace with its address, and the file system of the image,
// which is read-only but for its volumes.
type fleet struct {
	t        *testing.T
	folder   string
	prefix   string
	binary   string
	manifest map[string]map[string]any
	names    map[string]string // by DNS: addresses
	pods     []*pod
	networks int
}

type pod struct {
	f             *fleet
	name, address string
	spec          podSpec
	root          string
	init          *exec.Cmd
	said          bytes.Buffer
	ended         chan error
}

func sh(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func newFleet(t *testing.T, binary string, manifest map[string]map[string]any) *fleet {
	t.Helper()
	f := &fleet{t: t, folder: t.TempDir(), prefix: fmt.Sprintf("corbelpod%d", os.Getpid()), binary: binary,
		manifest: manifest, names: map[string]string{}}
	if err := os.Chmod(f.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, "ip", "netns", "add", f.prefix)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", f.prefix).Run() })
	sh(t, "ip", "-n", f.prefix, "link", "add", "br0", "type", "bridge")
	sh(t, "ip", "-n", f.prefix, "link", "set", "br0", "up")
	return f
}

// network gives an address a namespace on the bridge, and returns its name.
func (f *fleet) network(address string) string {
	f.t.Helper()
	f.networks++
	ns, port := fmt.Sprintf("%s-%d", f.prefix, f.networks), fmt.Sprintf("port%d", f.networks)
	sh(f.t, "ip", "netns", "add", ns)
	f.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	for _, args := range []string{"-n " + f.prefix + " link add " + port + " type veth peer name eth0 netns " + ns,
		"-n " + f.prefix + " link set " + port + " master br0 up", "-n " + ns + " addr add " + address + "/24 dev eth0",
		"-n " + ns + " link set eth0 up", "-n " + ns + " link set lo up"} {
		sh(f.t, "ip", strings.Fields(args)...)
	}
	return ns
}

// data is what a ConfigMap or a Secret holds.
func (f *fleet) data(kind, name string) (map[string]string, bool) {
	object, ok := f.manifest[kind+"/"+name]
	if !ok {
		return nil, false
	}
	out := map[string]string{}
	values, _ := object["data"].(map[string]any)
	for key, value := range values {
		text := value.(string)
		if kind == "Secret" {
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				f.t.Fatalf("%s/%s: %s: %v", kind, name, key, err)
			}
			text = string(b)
		}
		out[key] = text
	}
	return out, true
}

// fill writes what a volume holds, for the pod's group to read, as a kubelet does.
func (p *pod) fill(v *volume, dir string) {
	t := p.f.t
	t.Helper()
	files := map[string]string{}
	switch {
	case v.ConfigMap != nil:
		data, ok := p.f.data("ConfigMap", v.ConfigMap.Name)
		if !ok {
			t.Fatalf("no ConfigMap %s", v.ConfigMap.Name)
		}
		files = data
	case v.Secret != nil:
		data, ok := p.f.data("Secret", v.Secret.SecretName)
		if !ok && !v.Secret.Optional {
			t.Fatalf("no Secret %s", v.Secret.SecretName)
		}
		for _, item := range v.Secret.Items {
			text, ok := data[item.Key]
			if !ok && !v.Secret.Optional {
				t.Fatalf("Secret %s has no %s", v.Secret.SecretName, item.Key)
			}
			files[item.Path] = text
		}
		if len(v.Secret.Items) == 0 {
			files = data
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, p.spec.SecurityContext.RunAsGroup); err != nil {
			t.Fatal(err)
		}
	}
}

// podScript is a runtime of containers: mounts, a name, and the image's program as the pod's user, as process 1.
const podScript = `set -e
root=$1 name=$2 binary=$3 user=$4 group=$5 writable=$6
shift 6
mount --make-rprivate /
hostname "$name"
mount --bind "$root" "$root"
mount --bind "$binary" "$root/usr/bin/corbel"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for dir in $writable; do mount --bind "$root$dir" "$root$dir"; done
mount -o remount,bind,ro "$root"
exec env -i PATH=/usr/bin HOME=/var/lib/corbel setpriv --no-new-privs unshare --root="$root" --wd=/var/lib/corbel \
	--setgid="$group" --setuid="$user" -- /usr/bin/corbel "$@"
`

// run runs a pod of a kind of set. One that ran before has its data, and another address.
func (f *fleet) run(set, name, address string) *pod {
	t := f.t
	t.Helper()
	object, ok := f.manifest[set]
	if !ok {
		t.Fatalf("no %s", set)
	}
	b, err := json.Marshal(object["spec"].(map[string]any)["template"].(map[string]any)["spec"])
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{f: f, name: name, address: address, root: filepath.Join(f.folder, name), ended: make(chan error, 1)}
	if err := json.Unmarshal(b, &p.spec); err != nil {
		t.Fatal(err)
	}
	c := &p.spec.Containers[0]
	for _, dir := range []string{"usr/bin", "etc", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(p.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"usr/bin/corbel", "etc/hosts"} {
		if err := os.WriteFile(filepath.Join(p.root, file), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	volumes := map[string]*volume{}
	for i := range p.spec.Volumes {
		volumes[p.spec.Volumes[i].Name] = &p.spec.Volumes[i]
	}
	var writable []string
	for _, m := range c.VolumeMounts {
		dir := filepath.Join(p.root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if v := volumes[m.Name]; v != nil { // else a claim of the set: an empty disk
			p.fill(v, dir)
		}
		if !m.ReadOnly {
			writable = append(writable, m.MountPath)
			if err := os.Chown(dir, p.spec.SecurityContext.RunAsUser, p.spec.SecurityContext.RunAsGroup); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := []string{"netns", "exec", f.network(address), "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child",
		"sh", "-c", podScript, "sh", p.root, name, f.binary, fmt.Sprint(p.spec.SecurityContext.RunAsUser),
		fmt.Sprint(p.spec.SecurityContext.RunAsGroup), strings.Join(writable, " ")}
	for _, arg := range c.Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_IP)", address))
	}
	p.init = exec.Command("ip", args...)
	p.init.Stdout, p.init.Stderr = &p.said, &p.said
	if err := p.init.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.init.Wait() }()
	t.Cleanup(func() { _ = p.log() })
	f.pods = append(f.pods, p)
	return p
}

// resolve tells all pods which address a name has.
func (f *fleet) resolve(name, address string) {
	f.t.Helper()
	f.names[name] = address
	text := "127.0.0.1 localhost\n"
	for name, address := range f.names {
		text += address + " " + name + "\n"
	}
	for _, p := range f.pods {
		if err := os.WriteFile(filepath.Join(p.root, "etc/hosts"), []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

// process is the pod's process 1 as this host numbers it.
func (p *pod) process() (string, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.init.Process.Pid, p.init.Process.Pid))
	list := strings.Fields(string(children))
	if err != nil || len(list) == 0 {
		return "", fmt.Errorf("%s has ended: %w", p.name, err)
	}
	return list[0], nil
}

// enter is a command before which another is run in the pod, as its user.
func (p *pod) enter() ([]string, error) {
	process, err := p.process()
	if err != nil {
		return nil, err
	}
	return []string{"nsenter", "--target", process, "--mount", "--net", "--pid", "--uts", "--root", "--wd",
		fmt.Sprint("--setgid=", p.spec.SecurityContext.RunAsGroup), fmt.Sprint("--setuid=", p.spec.SecurityContext.RunAsUser),
		"--"}, nil
}

func (p *pod) exec(args ...string) (string, error) {
	enter, err := p.enter()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, enter[0], append(enter[1:], args...)...)
	cmd.Env = []string{"PATH=/usr/bin", "HOME=/var/lib/corbel"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// log ends the pod and returns what it said.
func (p *pod) log() string {
	if process, err := p.process(); err == nil { // which has become another user, and so outlives who started it
		_ = exec.Command("kill", "-KILL", process).Run()
	}
	_ = p.init.Process.Kill()
	p.ended <- <-p.ended
	return p.said.String()
}

// until polls what the pod answers.
func (p *pod) until(what string, good func(out string, err error) bool, args ...string) string {
	p.f.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; {
		out, err := p.exec(args...)
		if good(out, err) {
			return out
		}
		if time.Now().After(deadline) {
			p.f.t.Fatalf("%s: %s did not come: %v\n%s\nit said\n%s", p.name, what, err, out, p.log())
		}
		<-time.After(250 * time.Millisecond)
	}
}

// started waits for the pod's startup probe.
func (p *pod) started() {
	p.f.t.Helper()
	p.until("its start", func(_ string, err error) bool { return err == nil },
		p.spec.Containers[0].StartupProbe.Exec.Command...)
}

// The chart's pods run, without a kubelet: servers and agents of the rendered manifests, each as the pod's user in a
// read-only file system with its volumes, become a cluster with TLS and access control; the commands of the chart's
// notes let agents into the catalog; and a server that is deleted ends in time and comes back with another address.
// CORBEL_BINARY names a binary that was built with CGO_ENABLED=0.
func TestPodsRun(t *testing.T) {
	binary := os.Getenv("CORBEL_BINARY")
	if binary == "" || os.Getuid() != 0 {
		notRun(t, "root, and CORBEL_BINARY with the path of a binary built with CGO_ENABLED=0, are needed")
	}
	for _, tool := range []string{"ip", "unshare", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			notRun(t, tool+" is needed")
		}
	}
	i := action.NewInstall(cluster())
	i.ReleaseName, i.Namespace = "prod", "fleet"
	release, err := i.Run(load(t), values(t, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, binary, objects(t, release.Manifest))
	const servers, agents = "StatefulSet/prod-corbel-server", "DaemonSet/prod-corbel-agent"
	dns := func(n int) string { return fmt.Sprintf("prod-corbel-server-%d.prod-corbel-server.fleet.svc", n) }
	for n := range 3 {
		f.run(servers, fmt.Sprint("prod-corbel-server-", n), fmt.Sprint("10.244.0.", 10+n))
	}
	for n, name := range []string{"prod-corbel-agent-x7k2p", "prod-corbel-agent-q9v4d"} {
		f.run(agents, name, fmt.Sprint("10.244.0.", 20+n))
	}
	for n := range 3 {
		f.resolve(dns(n), f.pods[n].address)
	}
	for _, p := range f.pods[:3] {
		p.started()
	}

	acl, _ := f.data("Secret", "prod-corbel-acl")
	uuid := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	token, agentToken := uuid.FindString(acl["acl.json"]), uuid.FindString(acl["agent.json"])
	if token == "" || agentToken == "" || token == agentToken {
		t.Fatalf("the tokens are %q and %q", token, agentToken)
	}
	f.notes(release.Info.Notes, strings.NewReplacer("-token TOKEN", "-token "+token, "-secret AGENT", "-secret "+agentToken))
	for _, p := range f.pods[3:] { // servers give no certificate to an agent whose token they do not know
		p.started()
	}
	agent := f.pods[3]
	agent.until("all nodes in the catalog", func(out string, _ error) bool {
		for _, p := range f.pods {
			if !strings.Contains(out, p.name) {
				return false
			}
		}
		return true
	}, "/usr/bin/corbel", "catalog", "nodes", "-token", token)
	done := func(_ string, err error) bool { return err == nil }
	agent.until("a write", done, "/usr/bin/corbel", "kv", "put", "-token", token, "precious", "data")

	// The last server is deleted, and comes back at another address with its disk.
	gone := f.pods[2]
	process, err := gone.process()
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "kill", process)
	select {
	case err := <-gone.ended:
		gone.ended <- err // for its cleanup
		if err != nil {
			t.Errorf("%s: %v\n%s", gone.name, err, gone.log())
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s did not end within terminationGracePeriodSeconds\n%s", gone.name, gone.log())
	}
	f.pods = append(f.pods[:2], f.pods[3:]...)
	back := f.run(servers, gone.name, "10.244.0.30")
	f.resolve(dns(2), back.address)
	back.started()
	moved := regexp.MustCompile(regexp.QuoteMeta(back.name) + `\S* +` + regexp.QuoteMeta(back.address) + `:8301 +alive`)
	agent.until("the server's new address", func(out string, _ error) bool { return moved.MatchString(out) },
		"/usr/bin/corbel", "members", "-token", token)
	out := back.until("what was written", done, "/usr/bin/corbel", "kv", "get", "-token", token, "precious")
	if strings.TrimSpace(out) != "data" {
		t.Errorf("the server that came back reads %q", out)
	}
}

// notes runs the commands of the chart's notes in the pods that they name.
func (f *fleet) notes(text string, with *strings.Replacer) {
	t := f.t
	t.Helper()
	ran := 0
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl -n fleet exec ")
		name, command, found := strings.Cut(rest, " -- corbel ")
		if !ok || !found {
			continue
		}
		for _, p := range f.pods {
			if p.name == name {
				f.shell(p, "corbel "+with.Replace(command))
				ran++
			}
		}
	}
	if ran != 2 {
		t.Errorf("%d commands of the notes were run:\n%s", ran, text)
	}
}

// shell runs a line as a shell reads it, with corbel as that of the pod.
func (f *fleet) shell(p *pod, line string) {
	f.t.Helper()
	enter, err := p.enter()
	if err != nil {
		f.t.Fatal(err)
	}
	script := "corbel() { " + strings.Join(enter, " ") + " /usr/bin/corbel \"$@\"; }\n"
	last, lastErr := "", error(nil)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		out, err := exec.Command("sh", "-c", script+line).CombinedOutput()
		if err == nil {
			return
		}
		last, lastErr = string(out), err
		<-time.After(250 * time.Millisecond)
	}
	f.t.Fatalf("%s: %v\n%s", line, lastErr, last)
}
