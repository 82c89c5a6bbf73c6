// Package hedge asks any of the servers, and another one when the first is silent: a server may be frozen for seconds
// before gossip counts it as failed.
package hedge

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// after is how long a server may take for a read before another one is asked as well.
	after = time.Second
	// share is how many reads earn one hedge, most how many hedges are saved up: servers that are all
	// slow, because there is too much to do, are not asked for more.
	share, most = 10, 20
	// tries bounds how many servers are asked for one request.
	tries = 3
)

// ErrNoServers says that there is nobody to ask.
var ErrNoServers = errkind.New(errkind.Unavailable, "No known Consul servers")

// Servers are those that can be asked. Safe for concurrent use.
type Servers struct {
	client *rpc.Client
	alive  func() []string
	// spent counts hedges times share, less one for each read; between -most*share and 0.
	spent atomic.Int64
}

// New returns the servers at the addresses that alive returns, this process not among them.
func New(client *rpc.Client, alive func() []string) *Servers {
	return &Servers{client: client, alive: alive}
}

// Pick returns a server to ask, rather not one of those given, nor one that was silent within the last 15 s.
func (s *Servers) Pick(not ...string) (string, error) {
	list := s.alive()
	if len(list) == 0 {
		return "", ErrNoServers
	}
	at := rand.IntN(len(list))
	best, least := "", 3
	for i := range list {
		addr := list[(at+i)%len(list)]
		bad := 0
		if slices.Contains(not, addr) {
			bad = 2
		}
		if s.client.Silent(addr) {
			bad++
		}
		if bad < least {
			best, least = addr, bad
		}
	}
	return best, nil
}

// mayHedge takes one from what was saved up.
func (s *Servers) mayHedge() bool {
	if s.spent.Add(share) <= 0 {
		return true
	}
	s.spent.Add(-share)
	return false
}

func (s *Servers) earn() {
	if s.spent.Load() > -most*share {
		s.spent.Add(-1)
	}
}

// Read asks addr for something that may be asked twice, and another server too when that takes long. The first good
// answer counts.
func (s *Servers) Read(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
	s.earn()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var second []byte
	secondErr := error(ErrNoServers)
	done := make(chan struct{})
	hedge := time.AfterFunc(after, func() {
		defer close(done)
		other, err := s.Pick(addr)
		if err != nil || other == addr || !s.mayHedge() {
			return
		}
		if second, secondErr = s.client.Call(ctx, other, method, req); secondErr == nil {
			cancel() // the first is not waited for any more
		}
	})
	reply, err := s.client.Call(ctx, addr, method, req)
	if hedge.Stop() {
		return reply, err
	}
	if err == nil {
		cancel()
	}
	<-done
	if err != nil && secondErr == nil {
		return second, nil
	}
	return reply, err
}

// Ask is Read for callers that do not mind who answers. A server that is silent or gone is passed by, up to three.
func (s *Servers) Ask(ctx context.Context, method string, req []byte) ([]byte, error) {
	var tried []string
	for {
		addr, err := s.Pick(tried...)
		if err != nil {
			return nil, err
		}
		reply, err := s.Read(ctx, addr, method, req)
		if tried = append(tried, addr); err == nil || ctx.Err() != nil || !passedBy(err) || len(tried) == tries {
			return reply, err
		}
	}
}

// repeats is how often Repeat asks again before it gives up.
const repeats = 4

// Repeat calls the server that target names, and asks again for one when that does not answer or leads no more: gossip
// learns of a dead or frozen server later than we do. What is asked may be carried out twice.
func Repeat(ctx context.Context, client *rpc.Client, target func() (string, error), method string,
	req []byte) ([]byte, error) {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		addr, err := target()
		if err == nil {
			var reply []byte
			if reply, err = client.Call(ctx, addr, method, req); err == nil {
				return reply, nil
			}
		}
		if !passedBy(err) && !errkind.Is(err, errkind.NotLeader) || ctx.Err() != nil || wait.Tries() == repeats {
			return nil, err
		}
		t := time.NewTimer(wait.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// passedBy reports whether an error says nothing of the question, only of whom it was put to.
func passedBy(err error) bool {
	return errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.Unknown)
}
