package sockets

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// HolderOf names the process that has an address of this machine, of TCP (where it listens) or UDP; found is false
// where there is none, or where it is of another user and this one may not look.
func HolderOf(network string, at netip.AddrPort) (h Holder, found bool) {
	const listens, unconnected = "0A", "07"
	lists, state := []string{"/proc/net/tcp", "/proc/net/tcp6"}, listens
	if strings.HasPrefix(network, "udp") {
		lists, state = []string{"/proc/net/udp", "/proc/net/udp6"}, unconnected
	}
	inodes := map[string]bool{}
	for _, name := range lists {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // no IPv6, or no /proc
		}
		bound(string(b), state, plain(at), inodes)
	}
	if len(inodes) == 0 {
		return h, false
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return h, false
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, "socket:[") || !inodes[to[len("socket:["):len(to)-1]] {
			continue
		}
		parts := strings.Split(link, "/")
		if h.PID, err = strconv.Atoi(parts[2]); err != nil {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.PID))
		if err != nil {
			continue // it has just ended
		}
		h.Name = strings.TrimSpace(string(name))
		return h, true
	}
	return h, false
}

// bound adds the inodes of the sockets of a list of the kernel's that are in a state and bound to an address.
func bound(list, state string, at netip.AddrPort, inodes map[string]bool) {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != state {
			continue
		}
		has, ok := listedAddr(f[1])
		if ok && has.Port() == at.Port() && (has.Addr() == at.Addr() || has.Addr().IsUnspecified() ||
			at.Addr().IsUnspecified()) {
			inodes[f[9]] = true
		}
	}
}
