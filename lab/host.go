package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn"
)

// exhaustDescriptors leaves a follower few descriptors and takes them with connections.
func exhaustDescriptors(ctx context.Context, b *environment) (string, error) {
	s, err := b.follower(ctx)
	if err != nil {
		return "", err
	}
	const spare = 64
	if err := leaveDescriptors(s.Control.PID(), spare); err != nil {
		return "", err
	}
	for range spare + 64 { // the kernel accepts what the process cannot
		conn, err := net.DialTimeout("tcp", s.HTTP, time.Second)
		if err != nil {
			break
		}
		b.later(func() { _ = conn.Close() })
	}
	return "file descriptors of " + s.Name, nil
}

// settle is how long the doctor has to see a healthy card or proxy: it looks at them every ten seconds.
const settle = 12 * time.Second

// asEnvoy runs a program under the name of envoy, by which proxies are found, in a control group of its own that does
// not limit it yet.
func asEnvoy(b *environment, program string, args ...string) error {
	q, err := newQuota()
	if err != nil {
		return err
	}
	b.later(q.remove)
	b.quota = q
	if err := q.set(8); err != nil {
		return err
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	envoy := filepath.Join(b.dir, "envoy") // the kernel calls a process by the name that it was started by
	if err := os.Symlink(path, envoy); err != nil {
		return err
	}
	cmd := exec.Command(envoy, args...)
	cmd.SysProcAttr = spawn.DieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	b.later(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return q.add(cmd.Process.Pid)
}

// throttleProxy lowers the CPU quota of a busy process that is called envoy.
func throttleProxy(ctx context.Context, b *environment) (string, error) {
	const name = "lab-proxy"
	// A tenth of a core in bursts, as a proxy with traffic.
	err := asEnvoy(b, "sh", "-c", "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done",
		"envoy", "--service-node", name)
	if err != nil {
		return "", err
	}
	if err := spawn.Sleep(ctx, settle); err != nil {
		return "", err
	}
	return "CPU quota of " + name, b.quota.set(0.05)
}

// cards shows a server network cards whose counters grow by so much each second from the onset on.
func (b *environment) cards(ctx context.Context, s *server, perSecond map[string]uint64) error {
	began := time.Time{}
	show := func() error {
		now := map[string]uint64{}
		for name, n := range perSecond {
			now[name] = 1000
			if !began.IsZero() {
				now[name] += uint64(time.Since(began).Seconds() * float64(n))
			}
		}
		_, err := s.Control.Do(ctx, fault.Command{Do: fault.DoCards, Cards: map[string]map[string]uint64{"ens5": now}})
		return err
	}
	if err := show(); err != nil {
		return err
	}
	if err := spawn.Sleep(ctx, settle); err != nil {
		return err
	}
	began = time.Now()
	b.load.Go(func() {
		for spawn.Sleep(ctx, 500*time.Millisecond) == nil && show() == nil { // ends with the process
		}
	})
	return nil
}

func exceedAllowance(ctx context.Context, b *environment) (string, error) {
	s, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	return "allowance bw_out_allowance_exceeded of ens5",
		b.cards(ctx, s, map[string]uint64{"bw_out_allowance_exceeded": 300, "bw_in_allowance_exceeded": 0,
			"pps_allowance_exceeded": 0, "queue_0_tx_cnt": 900, "queue_1_tx_cnt": 1000})
}

func useOneQueue(ctx context.Context, b *environment) (string, error) {
	s, err := b.leader(ctx)
	if err != nil {
		return "", err
	}
	counters := map[string]uint64{"bw_out_allowance_exceeded": 0}
	for q := range 8 {
		counters[fmt.Sprintf("queue_%d_tx_cnt", q)] = 100
	}
	counters["queue_3_tx_cnt"] = 60_000
	return "transmit queue 3 of ens5", b.cards(ctx, s, counters)
}
