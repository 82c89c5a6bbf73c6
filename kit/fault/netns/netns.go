// Package netns builds small networks of Linux network namespaces for partition
// tests: every host of a Net is a namespace of its own with one address, all
// joined by a bridge that lives in a namespace too. Nothing outside of these
// namespaces is touched, so several Nets run side by side.
//
// Cuts drop packets at the receiver by nftables rules in its namespace: silent,
// as a broken network is, one-way if wanted, and for TCP and UDP alike.
//
// It needs Linux, root, and the commands ip and nft; Available says what is
// missing. Not safe for concurrent use.
package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Available returns why namespaces cannot be had here, or nil.
func Available() error {
	if runtime.GOOS != "linux" {
		return errors.New("network namespaces exist on Linux only")
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the command %s is missing (packages iproute2, nftables)", tool)
		}
	}
	probe := fmt.Sprintf("corbel-probe-%d-%d", os.Getpid(), serial.Add(1))
	if err := run("ip", "netns", "add", probe); err != nil {
		return err
	}
	defer run("ip", "netns", "del", probe)
	return run("ip", "netns", "exec", probe, "nft", "add", "table", "inet", "corbel")
}

var serial atomic.Uint32 // makes names unique within this process

// commandTimeout bounds one ip or nft command.
const commandTimeout = 20 * time.Second

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Net is a bridge with hosts on it.
type Net struct {
	prefix string
	hosts  int
	cuts   map[[2]int]bool
	ills   map[[2]int]string // rules about a part of the packets from one host to another
}

// New builds a network of hosts numbered from 0. Close takes it down.
func New(hosts int) (*Net, error) {
	if hosts < 1 || hosts > 250 {
		return nil, fmt.Errorf("netns: %d hosts (1 to 250 are possible)", hosts)
	}
	n := &Net{prefix: fmt.Sprintf("corbel-%d-%d", os.Getpid(), serial.Add(1)), hosts: hosts, cuts: map[[2]int]bool{},
		ills: map[[2]int]string{}}
	if err := n.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("netns: %w", err), n.Close())
	}
	return n, nil
}

func (n *Net) hub() string { return n.prefix + "-hub" }

// Namespace is the name of a host's namespace.
func (n *Net) Namespace(host int) string { return fmt.Sprintf("%s-%d", n.prefix, host) }

// IP is a host's address. It means something inside this Net only.
func (n *Net) IP(host int) string { return fmt.Sprintf("10.231.0.%d", host+1) }

func (n *Net) build() error {
	steps := [][]string{
		{"ip", "netns", "add", n.hub()},
		{"ip", "-n", n.hub(), "link", "add", "br0", "type", "bridge"},
		{"ip", "-n", n.hub(), "link", "set", "br0", "up"},
	}
	for host := range n.hosts {
		ns, port := n.Namespace(host), fmt.Sprintf("port%d", host)
		steps = append(steps,
			[]string{"ip", "netns", "add", ns},
			[]string{"ip", "-n", n.hub(), "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns},
			[]string{"ip", "-n", n.hub(), "link", "set", port, "master", "br0", "up"},
			[]string{"ip", "-n", ns, "addr", "add", n.IP(host) + "/24", "dev", "eth0"},
			[]string{"ip", "-n", ns, "link", "set", "eth0", "up"},
			[]string{"ip", "-n", ns, "link", "set", "lo", "up"},
			[]string{"ip", "netns", "exec", ns, "nft", "add", "table", "inet", "corbel"},
			[]string{"ip", "netns", "exec", ns, "nft", "add", "chain", "inet", "corbel", "in",
				"{ type filter hook input priority 0; }"})
	}
	for _, step := range steps {
		if err := run(step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Command returns cmd changed to run inside a host's namespace. Descriptors,
// environment and process id are the command's own: ip replaces itself by it.
func (n *Net) Command(ctx context.Context, host int, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.Namespace(host), name}, args...)...)
}

// Lose loses so many of a hundred packets from one host to another; 0 is none. It is nftables' own chance: kernels
// without netem have it.
func (n *Net) Lose(from, to, percent int) error { return n.spoil(from, to, percent, 100, "drop") }

// Reset ends so many of a thousand packets' connections from one host to another by a reset to the sender, as a
// middlebox does; 0 is none.
func (n *Net) Reset(from, to, permille int) error {
	return n.spoil(from, to, permille, 1000, "reject with tcp reset")
}

func (n *Net) spoil(from, to, part, of int, verdict string) error {
	if part < 0 || part > of {
		return fmt.Errorf("netns: %d of %d packets", part, of)
	}
	delete(n.ills, [2]int{from, to})
	if part > 0 {
		n.ills[[2]int{from, to}] = fmt.Sprintf("ip saddr %s meta l4proto tcp numgen random mod %d < %d %s", n.IP(from), of,
			part, verdict)
	}
	return n.rules(to)
}

// rules writes the rules of one host anew; nft does a file in one step.
func (n *Net) rules(host int) error {
	var sources []string
	for from := range n.hosts {
		if n.cuts[[2]int{from, host}] {
			sources = append(sources, n.IP(from))
		}
	}
	script := "flush chain inet corbel in\n"
	if len(sources) > 0 {
		script += "add rule inet corbel in ip saddr { " + strings.Join(sources, ", ") + " } drop\n"
	}
	for from := range n.hosts {
		if rule := n.ills[[2]int{from, host}]; rule != "" {
			script += "add rule inet corbel in " + rule + "\n"
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := n.Command(ctx, host, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("netns: rules of host %d: %w: %s", host, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Partition splits the network: hosts of one group reach each other and no other
// group; hosts in no group are cut from all groups.
func (n *Net) Partition(groups ...[]int) error {
	side := make([]int, n.hosts)
	for i, group := range groups {
		for _, host := range group {
			side[host] = i + 1
		}
	}
	clear(n.cuts)
	var errs []error
	for to := range n.hosts {
		for from := range n.hosts {
			if from != to && side[from] != side[to] {
				n.cuts[[2]int{from, to}] = true
			}
		}
		errs = append(errs, n.rules(to))
	}
	return errors.Join(errs...)
}

// Heal lifts all cuts, losses and resets.
func (n *Net) Heal() error {
	clear(n.cuts)
	clear(n.ills)
	var errs []error
	for host := range n.hosts {
		errs = append(errs, n.rules(host))
	}
	return errors.Join(errs...)
}

// SetLink takes a host's cable out or puts it in.
func (n *Net) SetLink(host int, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return run("ip", "-n", n.hub(), "link", "set", fmt.Sprintf("port%d", host), state)
}

// Close removes all namespaces. Processes that still run in them keep theirs until they end.
func (n *Net) Close() error {
	var errs []error
	names := []string{n.hub()}
	for host := range n.hosts {
		names = append(names, n.Namespace(host))
	}
	for _, name := range names {
		if _, err := os.Stat("/run/netns/" + name); err == nil {
			errs = append(errs, run("ip", "netns", "del", name))
		}
	}
	return errors.Join(errs...)
}
