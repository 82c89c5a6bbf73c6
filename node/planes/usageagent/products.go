package usageagentplane

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/relay"
)

const (
	productsEvery   = 10 * time.Second
	productsTimeout = 5 * time.Second
	// askedAgain is the least pause between questions about a name that servers do not know; mostMissing bounds the names
	// that are asked for without such a pause.
	askedAgain  = time.Second
	mostMissing = 16
)

// products are the definitions as servers have them, or had them when one last answered. They are kept in a file, so
// that an agent that starts while all servers are away can judge events.
type products struct {
	d    *plane.Doors
	file string
	tell func(ctx context.Context) ([]byte, error) // asks a server for all of them
	now  atomic.Pointer[map[string]*usage.Product] // nil while none are known

	mu      sync.Mutex      // one question at a time; guards what follows
	asked   time.Time       // when servers last answered
	missing map[string]bool // names that they did not know, in the answers of the last askedAgain
}

func newProducts(d *plane.Doors, file string) *products {
	p := &products{d: d, file: file, missing: map[string]bool{}}
	p.tell = func(ctx context.Context) ([]byte, error) {
		return d.Others.Ask(ctx, relay.MethodProducts, pack.String(nil, d.Tokens.Own()))
	}
	if b, err := vfs.ReadFile(d.FS, file); err == nil {
		if err := p.take(b); err != nil {
			d.Log.Warn("usage: the products in a file are asked for again", "file", file, "error", err)
		}
	}
	return p
}

// take takes in what servers told.
func (p *products) take(b []byte) error {
	var list []*usage.Product
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	all := map[string]*usage.Product{}
	for _, one := range list {
		all[one.Name] = one
	}
	p.now.Store(&all)
	return nil
}

// known is a definition as it was when servers last told.
func (p *products) known(name string) (*usage.Product, bool) {
	all := p.now.Load()
	if all == nil {
		return nil, false
	}
	found, ok := (*all)[name]
	return found, ok
}

// get is known, and asks servers for what is not.
func (p *products) get(ctx context.Context, name string) (*usage.Product, error) {
	if found, ok := p.known(name); ok {
		return found, nil
	}
	if err := p.askFor(ctx, name); err != nil {
		return nil, errkind.E(errkind.Unavailable, "usage: no server tells whether there is a product "+name+
			": send the events again", err)
	}
	if found, ok := p.known(name); ok {
		return found, nil
	}
	return nil, errkind.E(errkind.NotFound, "", usage.Wrong("product",
		"%.100q is not defined: PUT /v1/usage/products/%.100s", name, name))
}

// askFor has a server tell all definitions, unless one did so a moment ago and did not know the name. An answer from
// before the name was asked for says nothing: it may have been defined since.
func (p *products) askFor(ctx context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.d.Clock.Since(p.asked) >= askedAgain {
		clear(p.missing)
	}
	if p.missing[name] || len(p.missing) >= mostMissing {
		return nil
	}
	err := p.askLocked(ctx)
	if _, ok := p.known(name); err == nil && !ok {
		p.missing[name] = true
	}
	return err
}

// begin asks servers what there is; where none tells, what the file had is what is known.
func (p *products) begin(ctx context.Context) error {
	if err := p.ask(ctx); err != nil && p.now.Load() == nil {
		return err
	}
	return nil
}

// ask has a server tell all definitions.
func (p *products) ask(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.askLocked(ctx)
}

func (p *products) askLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, productsTimeout)
	defer cancel()
	reply, err := p.tell(ctx)
	if err != nil {
		return err
	}
	former := p.now.Load()
	if err := p.take(reply); err != nil {
		return err
	}
	p.asked = p.d.Clock.Now()
	if former != nil && same(*former, *p.now.Load()) {
		return nil
	}
	if err := vfs.WriteFileAtomic(p.d.FS, p.file, reply, 0o600); err != nil {
		p.d.Log.Warn("usage: the products are not kept in a file", "file", p.file, "error", err)
	}
	return nil
}

func same(a, b map[string]*usage.Product) bool {
	one, err1 := json.Marshal(a)
	two, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(one) == string(two)
}

// run asks now and then.
func (p *products) run(ctx context.Context) error {
	for {
		if err := p.ask(ctx); err != nil && ctx.Err() == nil {
			p.d.Log.Debug("usage: no server tells the products", "error", err)
		}
		t := p.d.Clock.NewTimer(productsEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}
