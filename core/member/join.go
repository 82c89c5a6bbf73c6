package member

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// joinParallel bounds the addresses that are tried at the same time.
const joinParallel = 4

// Join contacts the given addresses (host, host:port, IP, [IP]:port; names are
// resolved each time, and all their addresses tried) and returns how many answered.
// It fails, with kind Unavailable, only when none did. This member's own address
// counts as an answer when it is the only one: a first server may list itself.
func (p *Pool) Join(ctx context.Context, addrs []string) (int, error) {
	if err := p.up(ctx); err != nil {
		return 0, err
	}
	targets, failures := p.resolve(ctx, addrs)
	if len(targets) == 0 && len(failures) == 0 && len(addrs) > 0 {
		return 1, nil // all of them are this member
	}
	joined, more := p.contact(ctx, targets)
	if joined > 0 {
		return joined, nil
	}
	return 0, errkind.E(errkind.Unavailable, "gossip: join", errors.Join(append(failures, more...)...))
}

// resolve turns addresses into IPs with ports, without duplicates and without this member.
func (p *Pool) resolve(ctx context.Context, addrs []string) (targets []string, failures []error) {
	for _, addr := range addrs {
		host, port, err := splitHostPort(strings.TrimSpace(addr), p.cfg.JoinPort)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", addr, err))
			continue
		}
		var ips []netip.Addr
		if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			ips = []netip.Addr{ip}
		} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", addr, err))
			continue
		}
		for _, ip := range ips {
			t := netip.AddrPortFrom(ip.Unmap(), uint16(port)).String()
			if t != hostPort(Member{Addr: p.local, Port: p.port}) && !slices.Contains(targets, t) {
				targets = append(targets, t)
			}
		}
	}
	return targets, failures
}

// contact exchanges states with each target; memberlist bounds each by its TCP timeout.
func (p *Pool) contact(ctx context.Context, targets []string) (joined int, failures []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, joinParallel)
	for _, target := range targets {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return joined, append(failures, ctx.Err())
		}
		wg.Go(func() {
			defer func() { <-slots }()
			n, err := p.list.Join([]string{target})
			mu.Lock()
			defer mu.Unlock()
			joined += n
			if n == 0 && err != nil {
				failures = append(failures, err)
			}
		})
	}
	wg.Wait()
	return joined, failures
}

// Find tells whom to join, each time anew. What it could not find is its error; the addresses are good beside it.
type Find func(context.Context) ([]string, error)

// Known finds the addresses that it is given.
func Known(addrs ...string) Find {
	return func(context.Context) ([]string, error) { return addrs, nil }
}

// JoinFound joins, as Join does, whoever is found; what could not be found is an error only when nobody answers.
func (p *Pool) JoinFound(ctx context.Context, find Find) (int, error) {
	addrs, missed := find(ctx)
	if len(addrs) == 0 && missed != nil {
		return 0, errkind.E(errkind.Unavailable, "gossip: join", missed)
	}
	n, err := p.Join(ctx, addrs)
	if err != nil {
		return 0, errkind.E(errkind.Of(err), "gossip: join", errors.Join(err, missed))
	}
	return n, nil
}

// JoinRetry joins, trying again each interval (jittered by a tenth; 30 s) until one
// address answered, ctx ended, or max attempts failed (0: without end).
func (p *Pool) JoinRetry(ctx context.Context, find Find, interval time.Duration, max int) error {
	if interval <= 0 {
		interval = 30 * time.Second
	}
	for attempt := 1; ; attempt++ {
		n, err := p.JoinFound(ctx, find)
		if err == nil {
			p.cfg.Log.Info("joined the cluster", "answered", n)
			return nil
		}
		if errors.Is(err, errStopped) || ctx.Err() != nil {
			return err
		}
		if max > 0 && attempt >= max {
			return fmt.Errorf("gave up after %d attempts: %w", attempt, err)
		}
		p.cfg.Log.Warn("cannot join the cluster, trying again", "in", interval, "error", err)
		if !pause(ctx, interval-interval/10+rand.N(interval/5+1)) {
			return errkind.E(errkind.Unavailable, "gossip: join", ctx.Err())
		}
	}
}

// reconnect first goes back to the members of the last run, then tries, each
// ReconnectInterval, one of the failed members: after a partition nobody else would.
func (p *Pool) reconnect(ctx context.Context, known []string) {
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for _, addr := range known[:min(len(known), maxRejoin)] {
		if ctx.Err() != nil {
			return
		}
		// One that answers is enough: it tells about all others.
		if n, _ := p.contact(ctx, []string{addr}); n > 0 {
			p.cfg.Log.Info("joined a member of the last run", "addr", addr)
			break
		}
	}
	every(ctx, p.cfg.ReconnectInterval, func() {
		if p.self.hasLeft() {
			return
		}
		var failed []Member
		for _, m := range p.members.list() {
			if m.Status == Failed {
				failed = append(failed, m)
			}
		}
		if len(failed) == 0 {
			return
		}
		m := failed[rand.IntN(len(failed))]
		if n, _ := p.contact(ctx, []string{hostPort(m)}); n > 0 {
			p.cfg.Log.Info("reached a failed member again", "member", m.Name)
		}
	})
}

// maxRejoin bounds how many members of the last run are tried at start.
const maxRejoin = 32

// snapshotInterval bounds how often the snapshot is written.
const snapshotInterval = 5 * time.Second

const snapshotHead = "corbel gossip snapshot 1"

// encodeSnapshot lists the alive members, one a line: address, name.
func encodeSnapshot(members []Member, self string) []byte {
	b := []byte(snapshotHead + "\n")
	for _, m := range members {
		if m.Status == Alive && m.Name != self {
			b = fmt.Appendf(b, "%s %s\n", hostPort(m), m.Name)
		}
	}
	return b
}

// parseSnapshot returns the addresses; lines that do not fit are left out, since
// the file is a hint and never the truth.
func parseSnapshot(b []byte) (addrs []string) {
	s := bufio.NewScanner(bytes.NewReader(b))
	if !s.Scan() || s.Text() != snapshotHead {
		return nil
	}
	for s.Scan() {
		addr, _, _ := strings.Cut(s.Text(), " ")
		if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Port() != 0 {
			addrs = append(addrs, ap.String())
		}
	}
	return addrs
}

func (p *Pool) readSnapshot() []string {
	if p.cfg.SnapshotFile == "" {
		return nil
	}
	b, err := vfs.ReadFile(p.cfg.FS, p.cfg.SnapshotFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.cfg.Log.Warn("cannot read the gossip snapshot", "error", err)
		}
		return nil
	}
	return parseSnapshot(b)
}

// keepSnapshot writes the file soon after a change, and when ctx ends. Once this
// member left, it forgets the others unless it is to rejoin. An unwritable file
// costs the rejoin only: it is logged and tried at the next change.
func (p *Pool) keepSnapshot(ctx context.Context) {
	if p.cfg.SnapshotFile == "" {
		return
	}
	var written []byte
	write := func() {
		if p.self.hasLeft() && p.cfg.RejoinAfterLeave {
			return // what was written before stands
		}
		b := []byte(snapshotHead + "\n")
		if !p.self.hasLeft() {
			b = encodeSnapshot(p.members.list(), p.cfg.Name)
		}
		if bytes.Equal(b, written) {
			return
		}
		if err := vfs.WriteFileAtomic(p.cfg.FS, p.cfg.SnapshotFile, b, 0o600); err != nil {
			p.cfg.Log.Warn("cannot write the gossip snapshot", "error", err)
			return
		}
		written = b
	}
	for ctx.Err() == nil {
		changed := p.members.changes()
		// The first write waits too: what the last run left is better than an
		// empty list, should this process end before it met anybody.
		if pause(ctx, snapshotInterval) && p.members.aliveCount() > 1 {
			write()
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	if p.self.hasLeft() || p.members.aliveCount() > 1 {
		write()
	}
}
