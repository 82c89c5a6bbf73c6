package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs/client/allocnet"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/loud"

	"golang.org/x/sys/unix"
)

// alone puts the test's thread into a network of its own, where it ends.
func alone(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		loud.Skip(t, "networks of allocations: %v", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

func open(t *testing.T, dir string, change func(*Config)) *Host {
	t.Helper()
	cfg := Config{Dir: filepath.Join(dir, "state"), Spaces: filepath.Join(dir, "spaces")}
	if change != nil {
		change(&cfg)
	}
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func want(alloc string, port uint16) *allocnet.Want {
	return &allocnet.Want{Alloc: alloc, Mode: allocnet.BridgeMode, Ports: []allocnet.Port{{Label: "http",
		HostIP: netip.MustParseAddr("127.0.0.1"), Host: port, Inside: 80}}}
}

// TestLives: what one life makes the next one finds, keeps and takes away; half of it is made whole.
func TestLives(t *testing.T) {
	alone(t)
	dir := t.TempDir()
	before := run(t, "ip -o link; nft list ruleset")
	h := open(t, dir, nil)
	if modes, _ := h.Modes(t.Context()); len(modes) != 1 || modes[0] != "bridge" {
		t.Fatal(modes)
	}
	a, err := h.Join(t.Context(), want("a", 20001), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.Join(t.Context(), want("b", 20002), nil)
	if err != nil || a.Address == b.Address {
		t.Fatal(a.Address, b.Address, err)
	}
	if _, err := h.Join(t.Context(), &allocnet.Want{Alloc: "n", Mode: allocnet.NoneMode}, nil); err != nil {
		t.Fatal(err)
	}
	if c, err := h.Counters("a"); err != nil {
		t.Error(c, err)
	}
	inode := run(t, "stat -Lc %i "+a.Path)

	// Another life; meanwhile a cable and all rules are lost.
	run(t, "ip link del "+b.Outside+"; nft flush ruleset")
	h = open(t, dir, nil)
	h.Keep(t.Context(), []string{"a", "b"}, nil)
	if h.Made("n") != nil {
		t.Error("what nobody has is kept")
	}
	again, err := h.Join(t.Context(), want("a", 20001), nil)
	if err != nil || again.Address != a.Address || run(t, "stat -Lc %i "+a.Path) != inode {
		t.Error(again, err)
	}
	if _, err := h.Join(t.Context(), want("b", 20002), nil); err != nil {
		t.Fatal(err)
	}
	rules := run(t, "nft list ruleset")
	for _, m := range []*allocnet.Made{a, b} {
		if !strings.Contains(rules, m.Address.String()+" . 80") {
			t.Errorf("no port of %s in\n%s", m.Alloc, rules)
		}
		run(t, "ip link show "+m.Outside)
	}
	// Addresses of former lives are not given again.
	c, err := h.Join(t.Context(), want("c", 20003), nil)
	if err != nil || c.Address == a.Address || c.Address == b.Address {
		t.Error(c, err)
	}
	for _, alloc := range []string{"a", "b", "c", "c", "never"} {
		if err := h.Leave(t.Context(), alloc, nil); err != nil {
			t.Error(alloc, err)
		}
	}
	if after := run(t, "ip -o link; nft list ruleset"); after != before {
		t.Errorf("left: %s", after)
	}
	if left := run(t, "ls "+dir+"/state "+dir+"/spaces | grep -v : || true"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestForeign: what stands in the way is not touched, and the error says what to set.
func TestForeign(t *testing.T) {
	alone(t)
	for line, text := range map[string]string{
		"ip link add nomad type veth peer name damon":                        "bridge_network_name",
		"ip link add nomad type bridge && ip addr add 10.9.9.1/24 dev nomad": "bridge_network_subnet",
		"ip link add nomad type bridge":                                      "",
	} {
		dir := t.TempDir()
		run(t, "ip link del nomad 2>/dev/null; "+line)
		h := open(t, dir, nil)
		_, err := h.Join(t.Context(), want("a", 20001), nil)
		if (err == nil) != (text == "") || err != nil && (!strings.Contains(err.Error(), text) ||
			!errkind.Is(err, errkind.Unavailable)) {
			t.Errorf("%s: %v", line, err)
		}
		if err := h.Leave(t.Context(), "a", nil); err != nil {
			t.Error(line, err)
		}
		run(t, "ip link show nomad") // somebody else's
	}
	h := open(t, t.TempDir(), nil)
	w := want("v6", 20001)
	w.Ports[0].HostIP = netip.MustParseAddr("fd00::1")
	if _, err := h.Join(t.Context(), w, nil); !errkind.Is(err, errkind.Invalid) {
		t.Error(err)
	}
	h = open(t, t.TempDir(), func(c *Config) { c.Subnet = netip.MustParsePrefix("10.0.0.0/30"); c.Bridge = "small" })
	if _, err := h.Join(t.Context(), want("first", 20001), nil); err != nil {
		t.Error(err)
	}
	if _, err := h.Join(t.Context(), want("second", 20002), nil); err == nil ||
		!strings.Contains(err.Error(), "bridge_network_subnet") {
		t.Error(err)
	}
	if err := h.Leave(t.Context(), "first", nil); err != nil {
		t.Error(err)
	}
}

// held is a Holder whose container is this process.
type held struct {
	path string
	gone []string
}

func (h *held) Hold(_ context.Context, alloc, _ string) (path, container string, err error) {
	if h.path == "" {
		return "", "", errkind.New(errkind.Unavailable, "no Engine")
	}
	return h.path, "pause-" + alloc, nil
}

func (h *held) release(_ context.Context, alloc string) error {
	h.gone = append(h.gone, alloc)
	return nil
}

// Release implements Holder.
func (h *held) Release(ctx context.Context, alloc string) error { return h.release(ctx, alloc) }

// TestHolder: a namespace of a container is kept, and the container let go.
func TestHolder(t *testing.T) {
	alone(t)
	dir := t.TempDir()
	h, holder := open(t, dir, nil), &held{}
	if _, err := h.Join(t.Context(), want("a", 20001), holder); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
	other := filepath.Join(dir, "other")
	if err := makeNamespace(other, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := removeNamespace(other); err != nil {
			t.Error(err)
		}
	}()
	holder.path = other
	m, err := h.Join(t.Context(), want("a", 20001), holder)
	if err != nil || m.Holder != "pause-a" || run(t, "stat -Lc %i "+m.Path) != run(t, "stat -Lc %i "+other) {
		t.Fatal(m, err)
	}
	h = open(t, dir, nil)
	h.Keep(t.Context(), nil, holder.release)
	if len(holder.gone) != 1 || h.Made("a") != nil {
		t.Error(holder.gone)
	}
	if _, err := os.Stat(m.Path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
