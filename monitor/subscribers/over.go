package subscribers

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/monitor/ingest"
)

// MethodFollow is the stream by which a server asks another one for the events that it stores.
const MethodFollow = "monitor.follow"

// Servers is where the other servers of the plane are.
type Servers struct {
	// List gives the addresses of those that are up.
	List func() []string
	// Open opens a stream to one: recv returns its frames until the stream ends, and end ends it.
	Open func(ctx context.Context, addr, method string, req []byte) (recv func() ([]byte, error),
		end func() error, err error)
}

const (
	lookEvery = time.Second            // for servers that came
	pause     = 500 * time.Millisecond // before one that does not answer is asked again
)

// Over is Follow over all servers: what each of them stores comes to one queue, in order for each check. While a
// server does not answer what it stores is not shown; it is asked again as long as it is one of the plane's. Errors:
// Overloaded.
func (t *Subscribers) Over(filter Filter, servers Servers) (*Follower, error) {
	f, err := t.Follow(filter)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.beside.Go(func() { f.gather(ctx, servers) })
	return f, nil
}

// gather follows each server that there is, until ctx ends.
func (f *Follower) gather(ctx context.Context, servers Servers) {
	var all sync.WaitGroup
	defer all.Wait()
	var mu sync.Mutex
	following := map[string]bool{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		for _, addr := range servers.List() {
			mu.Lock()
			known := following[addr]
			following[addr] = true
			mu.Unlock()
			if known {
				continue
			}
			all.Go(func() {
				f.follow(ctx, servers, addr)
				t := time.NewTimer(pause)
				defer t.Stop()
				select {
				case <-ctx.Done():
				case <-t.C:
				}
				mu.Lock()
				delete(following, addr)
				mu.Unlock()
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow takes what one server stores, until that ends.
func (f *Follower) follow(ctx context.Context, servers Servers, addr string) {
	req := pack.String(pack.String(pack.String(nil, f.filter.Namespace), f.filter.Entity), f.filter.Check)
	recv, end, err := servers.Open(ctx, addr, MethodFollow, pack.Bool(req, f.filter.Changes))
	if err != nil {
		return
	}
	defer func() { _ = end() }()
	for {
		b, err := recv()
		if errkind.Is(err, errkind.Overloaded) { // there are holes
			f.cutOff()
		}
		if err != nil {
			return
		}
		p, err := ingest.ReadTold(b)
		if err != nil {
			return
		}
		f.put(p)
	}
}

// Serve answers MethodFollow with what this server stores.
func (t *Subscribers) Serve(ctx context.Context, req []byte, send func([]byte) error) error {
	r := pack.Read(req)
	filter := Filter{Namespace: r.String(), Entity: r.String(), Check: r.String(), Changes: r.Bool()}
	if r.Err() != nil {
		return errkind.E(errkind.Invalid, MethodFollow, r.Err())
	}
	f, err := t.Follow(filter)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		p, err := f.Next(ctx)
		if err != nil {
			return err
		}
		if err := send(ingest.AppendTold(nil, p)); err != nil {
			return err
		}
	}
}
