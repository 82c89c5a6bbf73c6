package wan

import (
	"context"
	"math"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// ErrNoPath says that nobody in a datacenter can be reached.
var ErrNoPath = errkind.New(errkind.Unavailable, "No path to datacenter")

// tries bounds how many servers of a datacenter are asked for one request.
const tries = 3

// patience is how long a server may take to show that it is there, before another one is asked.
const patience = 2 * time.Second

// choices are the paths to try for one request: those last whose servers were silent lately.
func (p *Paths) choices(dc string) []*Path {
	list := p.to(dc, math.MaxInt)
	slices.SortStableFunc(list, func(a, b *Path) int {
		silent := func(one *Path) int {
			if p.Client.Silent(one.Addr) {
				return 1
			}
			return 0
		}
		return silent(a) - silent(b)
	})
	return list[:min(len(list), tries)]
}

func (p *Paths) count(dc string) { p.metrics.Counter("rpc.cross-dc", "datacenter", dc).Add(1) }

// Ask calls a server of dc, and another one when that one certainly did nothing, or when asking twice does no harm
// (reads). waits says that the answer may take as long as ctx lasts. The error is ErrNoPath, or wraps it, when nobody
// there can be reached.
func (p *Paths) Ask(ctx context.Context, dc, method string, req []byte, reads, waits bool) ([]byte, error) {
	p.count(dc)
	err := error(ErrNoPath)
	for _, one := range p.choices(dc) {
		var reply []byte
		if reply, err = p.call(ctx, one, method, req, waits); err == nil {
			return reply, nil
		}
		one.doubt()
		again := errkind.Is(err, errkind.Unavailable) || reads && errkind.Is(err, errkind.Unknown)
		if !again || ctx.Err() != nil {
			return nil, err
		}
		err = errkind.E(errkind.Unavailable, err.Error(), ErrNoPath)
	}
	return nil, err
}

// Reach returns the path to a server of dc that has just shown that it is there, for what cannot be asked twice. That
// tells apart what is not there from what broke on the way.
func (p *Paths) Reach(ctx context.Context, dc string) (*Path, error) {
	p.count(dc)
	for _, one := range p.choices(dc) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		_, err := p.Client.Call(ctx, one.Addr, MethodPing, nil)
		cancel()
		if err == nil {
			return one, nil
		}
		one.doubt()
	}
	return nil, ErrNoPath
}

// call sends the request; it ends when the path is judged broken: a network that was cut leaves
// connections open and silent.
func (p *Paths) call(ctx context.Context, one *Path, method string, req []byte, waits bool) ([]byte, error) {
	broken := one.Broken()
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(broken, cancel)
	defer stop()
	call := p.Client.Call
	if waits {
		call = p.Client.Wait
	}
	reply, err := call(callCtx, one.Addr, method, req)
	if err != nil && broken.Err() != nil && ctx.Err() == nil {
		return nil, errkind.E(errkind.Unknown, "the connection to "+one.name+" broke: outcome unknown", ErrNoPath)
	}
	return reply, err
}
