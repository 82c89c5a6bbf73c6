package netns

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
)

// reaches reports whether one host hears of another within the limit, by the shell's own means: no tool beyond ip and
// nft is needed for a neighbour probe.
func reaches(t *testing.T, n *Net, from, to int, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := n.Command(ctx, from, "bash", "-c", "exec 3<>/dev/tcp/"+n.IP(to)+"/9")
	// Port 9 is closed: a reachable host refuses at once, an unreachable one is silent.
	done := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { done <- cmd.Wait() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		cancel()
		<-done
		return false
	}
}

func TestPartition(t *testing.T) {
	if err := Available(); err != nil {
		loud.Skip(t, "partitions over network namespaces: %v", err)
	}
	n, err := New(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	expect := func(when string, from, to int, want bool) {
		t.Helper()
		limit := time.Second
		if want {
			limit = 20 * time.Second // a busy machine starts a process when it can
		}
		if got := reaches(t, n, from, to, limit); got != want {
			t.Errorf("%s: %d reaches %d: %t, want %t", when, from, to, got, want)
		}
	}
	expect("whole", 0, 1, true)
	expect("whole", 2, 1, true)
	if err := n.Partition([]int{0}, []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	expect("split", 0, 1, false)
	expect("split", 2, 0, false)
	expect("split", 2, 1, true)
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	expect("healed", 0, 1, true)
	if err := n.SetLink(1, false); err != nil {
		t.Fatal(err)
	}
	expect("unplugged", 0, 1, false)
	expect("unplugged", 0, 2, true)
}
