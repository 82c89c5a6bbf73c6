package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// prefixMirror holds what the answers of ?since= say, one after the other.
type prefixMirror struct {
	index  uint64
	values map[string]string
	resets int
}

// sync takes one answer over; anything but an answer is tried again by the caller.
func (p *prefixMirror) sync(m *testMember, mode string) error {
	code, body := m.ask("GET", fmt.Sprintf("/v1/kv/p/?recurse&wait=1s&since=%d%s", p.index, mode), "")
	if code != http.StatusOK {
		return fmt.Errorf("%d %s", code, body)
	}
	var a struct {
		Index   uint64
		Reset   bool
		Set     []struct{ Key, Value string }
		Deleted []string
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		return err
	}
	if a.Reset {
		p.resets++
		clear(p.values)
	}
	for _, pair := range a.Set {
		p.values[pair.Key] = pair.Value
	}
	for _, key := range a.Deleted {
		delete(p.values, key)
	}
	p.index = a.Index
	return nil
}

// whole is the prefix as a consistent read shows it, with the index that it is of.
func whole(m *testMember) (values map[string]string, err error) {
	code, body := m.ask("GET", "/v1/kv/p/?recurse&consistent", "")
	if code != http.StatusOK {
		return nil, fmt.Errorf("%d %s", code, body)
	}
	var pairs []struct{ Key, Value string }
	if err := json.Unmarshal([]byte(body), &pairs); err != nil {
		return nil, err
	}
	values = map[string]string{}
	for _, pair := range pairs {
		values[pair.Key] = pair.Value
	}
	return values, nil
}

// TestSinceFollowsAcrossServers: whoever follows a prefix by ?since=, going from server to server as it likes, over
// changes of the leader and reading stale or not, ends with what a full read shows.
func TestSinceFollowsAcrossServers(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, aclOff)
	rng := rand.New(rand.NewPCG(7, 9))
	written := make(chan struct{})
	var wg sync.WaitGroup
	modes := []string{"", "&stale", "&stale", ""}
	mirrors := make([]*prefixMirror, len(modes))
	for i, mode := range modes {
		p := &prefixMirror{values: map[string]string{}}
		mirrors[i] = p
		own := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for {
				_ = p.sync(servers[own.IntN(len(servers))], mode) // a server between two leaders refuses: the next one answers
				select {
				case <-written:
					return
				default:
				}
			}
		})
	}
	write := func(method, path, body string) {
		polltest.Until(t, func() bool {
			code, _ := servers[rng.IntN(len(servers))].ask(method, path, body)
			return code == http.StatusOK
		}, "%s %s", method, path)
	}
	for n := range 240 {
		key := fmt.Sprintf("/v1/kv/p/%d", rng.IntN(24))
		switch pick := rng.IntN(20); {
		case n%80 == 79:
			leader, _ := leaderOf(t, servers)
			leader.ask("POST", "/v1/operator/raft/transfer-leader", "") // one that fails changes nothing
		case pick < 12:
			write("PUT", key, fmt.Sprint(n))
		case pick < 18:
			write("DELETE", key, "")
		default:
			write("DELETE", "/v1/kv/p/1?recurse", "")
		}
	}
	close(written)
	wg.Wait()
	want := map[string]string(nil)
	polltest.Until(t, func() bool {
		var err error
		want, err = whole(servers[0])
		return err == nil
	}, "a full read")
	for i, p := range mirrors {
		polltest.Until(t, func() bool {
			return p.sync(servers[i%len(servers)], modes[i]) == nil && maps.Equal(p.values, want)
		}, "mirror %d to hold what the full read shows", i)
		if p.resets > 8 { // one to begin with, and one for a leader that is behind what was told already
			t.Errorf("mirror %d was told everything %d times: changes should do", i, p.resets)
		}
	}
}
