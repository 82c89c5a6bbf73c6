package cninet

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/kit/errkind"
)

// plugin is a plug-in of this test: it notes what it is asked in DIR, and answers with an address.
const plugin = `#!/bin/sh
[ -n "$CNI_COMMAND" ] || { echo "CNI PLUGIN plugin v1.4.2" >&2; echo "CNI protocol versions supported: 1.0.0" >&2; exit 0; }
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0
fi
{ echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS"; cat; echo; } >>DIR/asked
[ -e DIR/fail ] && [ "$CNI_COMMAND" = ADD ] && { echo '{"cniVersion":"1.0.0","code":11,"msg":"try later"}'; exit 1; }
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","interfaces":[{"name":"host0"},{"name":"net1","sandbox":"/x"}],
 "ips":[{"address":"fd00::7/64","interface":1},{"address":"10.1.2.3/24","interface":1}],
 "dns":{"nameservers":["10.1.2.1"],"search":["corp"]}}'
exit 0
`

const list = `{"cniVersion":"1.0.0","name":"mynet","plugins":[{"type":"good","capabilities":{"portMappings":true}}]}`

func lay(t *testing.T) (dir string, n *Networks) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/good", strings.NewReplacer("DIR", dir, "PLUGIN", "good").Replace(plugin), 0o755)
	write("bin/README", "no plug-in", 0o644)
	write("etc/10-mynet.conflist", list, 0o644)
	write("etc/20-single.conf", `{"cniVersion":"0.4.0","name":"single","type":"good","ipam":{"type":"good"}}`, 0o644)
	write("etc/30-lacks.conflist", `{"cniVersion":"1.0.0","name":"lacks","plugins":[{"type":"good",
 "ipam":{"type":"dhcp"}}]}`, 0o644)
	write("etc/40-broken.conflist", `{"cniVersion":`, 0o644)
	write("etc/50-mynet-again.conflist", strings.Replace(list, "good", "other", 1), 0o644)
	write("etc/60-path.conf", `{"cniVersion":"1.0.0","name":"path","type":"../bin/good"}`, 0o644)
	return dir, New(Config{Path: "/nowhere:" + filepath.Join(dir, "bin"), Dir: filepath.Join(dir, "etc"),
		Cache: filepath.Join(dir, "cache")})
}

// TestLook: what is offered, what is missing of the rest, and which plug-ins there are.
func TestLook(t *testing.T) {
	_, n := lay(t)
	f := n.Look(t.Context())
	if !reflect.DeepEqual(f.Names, []string{"mynet", "single"}) {
		t.Error(f.Names)
	}
	if !reflect.DeepEqual(f.Attributes, map[string]string{"plugins.cni.version.good": "v1.4.2"}) {
		t.Error(f.Attributes)
	}
	for name, want := range map[string]string{"lacks": `"dhcp" is not in`, "40-broken.conflist": "JSON",
		"path": "not in"} {
		if err := f.Wrong[name]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f := New(Config{}).Look(t.Context()); len(f.Names)+len(f.Wrong)+len(f.Attributes) != 0 {
		t.Errorf("%+v", f)
	}
}

// TestPlugins: what plug-ins are asked, what their answer means, and that a configuration which changes meanwhile does
// not keep Del from undoing what Add did.
func TestPlugins(t *testing.T) {
	dir, n := lay(t)
	a := &Attachment{Network: "mynet", Alloc: "a1", Path: "/run/netns/a1", Interface: "eth0",
		Args:  map[string]string{"NOMAD_JOB_ID": "j", "BAD": "a;b"},
		Ports: []allocnet.Port{{Label: "http", HostIP: netip.MustParseAddr("10.0.0.1"), Host: 20001, Inside: 80}}}
	got, err := n.Add(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if got.Address != netip.MustParseAddr("10.1.2.3") || got.Interface != "net1" || got.DNS.Servers[0] != "10.1.2.1" ||
		got.DNS.Searches[0] != "corp" {
		t.Errorf("%+v", got)
	}
	asked := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "asked"))
		_ = os.Remove(filepath.Join(dir, "asked"))
		return string(text)
	}
	text := asked()
	for _, want := range []string{"ADD a1 eth0 IgnoreUnknown=true;NOMAD_JOB_ID=j\n", `"hostPort":20001`,
		`"containerPort":80`, `"hostIP":"10.0.0.1"`, `"protocol":"udp"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if err := os.Remove(filepath.Join(dir, "etc/10-mynet.conflist")); err != nil {
		t.Fatal(err)
	}
	if err := n.Del(t.Context(), a); err != nil {
		t.Error(err)
	}
	if text := asked(); !strings.HasPrefix(text, "DEL a1 eth0") || !strings.Contains(text, `"prevResult"`) {
		t.Error(text)
	}
	if err := n.Del(t.Context(), &Attachment{Network: "nobody", Alloc: "x"}); err != nil {
		t.Error(err)
	}
	refused := func(text string) {
		t.Helper()
		if _, err := n.Add(t.Context(), a); !errkind.Is(err, errkind.Unavailable) || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
	refused("jobs.agent.cni_path") // the second file's, of another plug-in
	a.Network = "nobody"
	refused("40-broken")
	a.Network = "single"
	if err := os.WriteFile(filepath.Join(dir, "fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("try later")
	if text := asked(); !strings.Contains(text, "DEL a1") {
		t.Errorf("what was begun is not undone: %s", text)
	}
}

// TestVersion: what plug-ins say of themselves.
func TestVersion(t *testing.T) {
	for text, want := range map[string]string{"CNI bridge plugin v1.1.1\nCNI protocol": "v1.1.1",
		"CNI plugin bridge v0.9.1-rc1\n": "v0.9.1-rc1", "CNI bridge plugin version unknown\n": "unknown",
		"usage: tool": "", "": "", "Hello CNI v1": ""} {
		if got := version(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzVersion: whatever a file in the folder of plug-ins prints, reading it ends.
func FuzzVersion(f *testing.F) {
	f.Add("CNI bridge plugin v1.1.1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if v := version(text); len(v) > len(text) || strings.ContainsAny(v, " \n") {
			t.Errorf("%q", v)
		}
	})
}
