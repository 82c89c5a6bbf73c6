package node

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// hedgeAfter is how long a server may take for a read before another one is asked as well.
	hedgeAfter = time.Second
	// hedgeShare is how many reads earn one hedge, hedgeMost how many hedges are saved up: servers that are all
	// slow, because there is too much to do, are not asked for more.
	hedgeShare, hedgeMost = 10, 20
)

// elsewhere asks any of the servers, and another one when the first is silent: a server may be frozen for seconds
// before gossip counts it as failed.
type elsewhere struct {
	client *rpc.Client
	// servers returns the addresses of living servers, this process not among them.
	servers func() []string
	// spent counts hedges times hedgeShare, less one for each read; between -hedgeMost*hedgeShare and 0.
	spent atomic.Int64
}

// pick returns a server to ask, rather not one of those given, nor one that was silent within the last 15 s.
func (e *elsewhere) pick(not ...string) (string, error) {
	list := e.servers()
	if len(list) == 0 {
		return "", errNoServers
	}
	at := rand.IntN(len(list))
	best, least := "", 3
	for i := range list {
		addr := list[(at+i)%len(list)]
		bad := 0
		if slices.Contains(not, addr) {
			bad = 2
		}
		if e.client.Silent(addr) {
			bad++
		}
		if bad < least {
			best, least = addr, bad
		}
	}
	return best, nil
}

// mayHedge takes one from what was saved up.
func (e *elsewhere) mayHedge() bool {
	if e.spent.Add(hedgeShare) <= 0 {
		return true
	}
	e.spent.Add(-hedgeShare)
	return false
}

func (e *elsewhere) earn() {
	if e.spent.Load() > -hedgeMost*hedgeShare {
		e.spent.Add(-1)
	}
}

// read asks addr for something that may be asked twice, and another server too when that takes long. The first good
// answer counts.
func (e *elsewhere) read(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
	e.earn()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var second []byte
	secondErr := error(errNoServers)
	done := make(chan struct{})
	hedge := time.AfterFunc(hedgeAfter, func() {
		defer close(done)
		other, err := e.pick(addr)
		if err != nil || other == addr || !e.mayHedge() {
			return
		}
		if second, secondErr = e.client.Call(ctx, other, method, req); secondErr == nil {
			cancel() // the first is not waited for any more
		}
	})
	reply, err := e.client.Call(ctx, addr, method, req)
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

// ask is read for callers that do not mind who answers. A server that is silent or gone is passed by, up to three.
func (e *elsewhere) ask(ctx context.Context, method string, req []byte) ([]byte, error) {
	var tried []string
	for {
		addr, err := e.pick(tried...)
		if err != nil {
			return nil, err
		}
		reply, err := e.read(ctx, addr, method, req)
		if tried = append(tried, addr); err == nil || ctx.Err() != nil || !passedBy(err) || len(tried) == wanTries {
			return reply, err
		}
	}
}

// passedBy reports whether an error says nothing of the question, only of whom it was put to.
func passedBy(err error) bool {
	return errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.Unknown)
}
