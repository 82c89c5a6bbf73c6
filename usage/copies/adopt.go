package copies

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/slots"
)

// adopt makes the catalog's newest word this host's own: what it owns no more it lets go, and what comes to it is taken
// from its former owner.
func (h *Host) adopt(ctx context.Context, v *View) {
	old := h.table.Load()
	if v.Incarnation != h.incarnation { // the catalog has a former life of this host, or nothing
		h.change(func(t *table) {
			t.view = v
			for b := range t.own {
				t.own[b], t.feeds[b], t.imports[b] = others, nil, nil
			}
		})
		return
	}
	lost := old.view == nil || v.Since > old.view.Index
	var taken []int
	for b := range old.own {
		if v.owner(b) == h.cfg.Self && (old.own[b] == others || old.own[b] == mine && lost ||
			old.own[b] == given && v.Index > old.asOf[b]) {
			taken = append(taken, b)
		}
	}
	if len(taken) == 0 {
		h.change(func(t *table) { t.settle(h.cfg.Self, v, h.cfg.Clock.Now(), nil, nil) })
		return
	}
	h.forsake(ctx, taken)
	fits := h.fit(v, taken, lost)
	former, rest := map[string][]int{}, without(v, h.cfg.Self)
	for _, b := range taken {
		// One that the catalog takes for gone has acknowledged nothing that a copy which misses nothing does not have.
		if f := h.former(old, rest, b, lost); f != "" && (v.has(f) || !fits[b]) {
			former[f] = append(former[f], b)
		}
	}
	imports := h.release(ctx, v, former, fits)
	h.mu.Lock()
	drop := [slots.Blocks]bool{}
	for _, b := range taken {
		drop[b] = !fits[b]
		if fits[b] {
			h.meters.taken.Add(1)
		}
		h.held[b], h.had[b], h.lent[b] = held{}, true, lent{}
	}
	h.mu.Unlock()
	h.cache.Drop(func(key string) bool { return drop[blockOf(key)] })
	h.change(func(t *table) { t.settle(h.cfg.Self, v, h.cfg.Clock.Now(), taken, imports) })
}

// forsake gives up the hosts that had copies of blocks before this host lost them: they may have them still, and must
// not go on with them.
func (h *Host) forsake(ctx context.Context, taken []int) {
	for _, l := range h.table.Load().links {
		if l.hadAny(taken) {
			l.quit()
			for !l.ended() && ctx.Err() == nil {
				pause(ctx, h.cfg.Clock, look/10)
			}
		}
	}
}

func blockOf(key string) int { return slots.Of([]byte(key)) / slots.Block }

// settle puts into a table who owns what by a view.
func (t *table) settle(self string, v *View, now time.Time, taken []int, imports map[int]*imported) {
	t.view = v
	for b := range t.own {
		if v.owner(b) == self {
			continue
		}
		if t.own[b] == mine {
			t.left[b] = now
		}
		t.own[b], t.feeds[b], t.imports[b] = others, nil, nil
	}
	for _, b := range taken {
		t.own[b], t.imports[b], t.feeds[b], t.left[b] = mine, imports[b], nil, time.Time{}
	}
}

// without is the map as it would be without a host.
func without(v *View, host string) *slots.Map {
	nodes := slices.DeleteFunc(slices.Clone(v.Map.Nodes()), func(n slots.Node) bool { return n.ID == host })
	return slots.Assign(nodes, 1)
}

// former is the host that owned a block before.
func (h *Host) former(old *table, rest *slots.Map, b int, lost bool) string {
	host := ""
	switch {
	case old.own[b] == given:
		host = old.givenTo[b]
	case !lost && old.view != nil:
		host = old.view.owner(b)
	}
	if host == "" || host == h.cfg.Self { // this host is new here, or was away
		n, _ := rest.Owner(b * slots.Block)
		host = n.ID
	}
	return host
}

// fit says of which blocks this host has a copy that the catalog says misses nothing.
func (h *Host) fit(v *View, taken []int, lost bool) map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	fits := map[int]bool{}
	for _, b := range taken {
		x := h.held[b]
		fits[b] = !lost && x.whole && v.Named[x.of][h.cfg.Self] == x.session
	}
	return fits
}

// releaseWait is how long one request to let go may take.
const releaseWait = 3 * time.Second

// release asks the former owners of blocks to let go, and returns those that they give values of. One that does not
// answer has heard from the catalog what this host knows, or answers nobody, after Silence.
func (h *Host) release(ctx context.Context, v *View, former map[string][]int, fits map[int]bool) map[int]*imported {
	var mu sync.Mutex
	var wg sync.WaitGroup
	imports := map[int]*imported{}
	for host, blocks := range former {
		wg.Go(func() {
			h.mu.Lock()
			heir := h.heirs[host]
			h.mu.Unlock()
			b := pack.Uint(pack.Uint(pack.String(nil, h.cfg.Self), v.Index), heir)
			b = pack.Uint(b, uint64(len(blocks)))
			for _, n := range blocks {
				b = pack.Bool(pack.Uint(b, uint64(n)), !fits[n])
			}
			reply, err := h.letGo(ctx, host, b)
			if err != nil {
				h.cfg.Log.Info("a former owner of keys of the cache did not let go", "host", host, "error", err)
				return
			}
			list, err := readBlocks(pack.Read(reply))
			if err != nil {
				return
			}
			im := &imported{from: host, began: h.cfg.Clock.Now(), seed: maphash.MakeSeed(), buried: map[uint64]bool{}}
			mu.Lock()
			defer mu.Unlock()
			for _, n := range list {
				imports[n] = im
			}
		})
	}
	wg.Wait()
	return imports
}

// letGo asks one host, as long as it may still believe that it owns the blocks.
func (h *Host) letGo(ctx context.Context, host string, req []byte) ([]byte, error) {
	for began := h.cfg.Clock.Now(); ; {
		one, cancel := context.WithTimeout(ctx, releaseWait)
		reply, err := h.cfg.Call(one, host, MethodRelease, req)
		cancel()
		silent := errkind.Is(err, errkind.Unavailable) || errkind.Is(err, errkind.Unknown)
		if err == nil || !silent || h.cfg.Clock.Since(began) > h.cfg.Silence || ctx.Err() != nil {
			return reply, err
		}
		pause(ctx, h.cfg.Clock, look)
	}
}

// imported are blocks of which a former owner gives values.
type imported struct {
	from  string
	began time.Time
	seed  maphash.Seed

	mu     sync.Mutex // guards what follows
	closed bool
	buried map[uint64]bool // what went meanwhile must not come back
}

// mostBuried bounds what is remembered: beyond it, nothing more is taken.
const mostBuried = 1 << 18

func (im *imported) bury(key string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.closed {
		return
	}
	if im.buried[maphash.String(im.seed, key)] = true; len(im.buried) > mostBuried {
		im.closed, im.buried = true, nil
	}
}

func (im *imported) close() {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.closed, im.buried = true, nil
}

// may says whether a key may come.
func (im *imported) may(key string) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return !im.closed && !im.buried[maphash.String(im.seed, key)]
}

func (im *imported) over() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.closed
}

// longestImport is how long a former owner may take to give what it has.
const longestImport = time.Minute

// A host that was given up as a copy is left alone for leastRetry, and longer each time, up to mostRetry.
const (
	leastRetry = time.Second
	mostRetry  = 30 * time.Second
)

func (f failure) rests(now time.Time) bool {
	return f.times > 0 && now.Sub(f.at) < min(leastRetry<<min(f.times-1, 10), mostRetry)
}

// tend ends what has come over, and keeps a link to each host that is to have copies.
func (h *Host) tend(ctx context.Context) {
	t, now := h.table.Load(), h.cfg.Clock.Now()
	if t.view == nil || ctx.Err() != nil {
		return
	}
	var done []int
	for b, im := range t.imports {
		if im != nil && (im.over() || now.Sub(im.began) > longestImport || !t.view.has(im.from)) {
			im.close()
			done = append(done, b)
		}
	}
	if len(done) > 0 {
		h.change(func(t *table) {
			for _, b := range done {
				t.imports[b] = nil
			}
		})
		t = h.table.Load()
	}
	wants := map[string]*blockSet{}
	for b, own := range t.own {
		if own != mine || t.imports[b] != nil {
			continue
		}
		for _, n := range t.view.Map.Owners(b * slots.Block)[1:] {
			if n.ID != h.cfg.Self && !n.Draining {
				if wants[n.ID] == nil {
					wants[n.ID] = &blockSet{}
				}
				wants[n.ID][b] = true
			}
		}
	}
	for host, l := range t.links {
		if wants[host] == nil {
			wants[host] = &blockSet{}
		}
		l.want(wants[host])
	}
	for host, blocks := range wants {
		if t.links[host] != nil || *blocks == (blockSet{}) {
			continue
		}
		h.mu.Lock()
		rest := h.fails[host].rests(now)
		h.mu.Unlock()
		if rest {
			continue
		}
		l := newLink(h, host, blocks)
		h.change(func(t *table) { t.links[host] = l })
		h.group.Go(func() { l.run(ctx) })
	}
}

// blockSet is some of the blocks.
type blockSet [slots.Blocks]bool

func (s *blockSet) list() (list []int) {
	for b, is := range s {
		if is {
			list = append(list, b)
		}
	}
	return list
}

func (s *blockSet) has(key string) bool { return s[blockOf(key)] }

func appendBlocks(b []byte, list []int) []byte {
	b = pack.Uint(b, uint64(len(list)))
	for _, n := range list {
		b = pack.Uint(b, uint64(n))
	}
	return b
}

func readBlocks(r *pack.Reader) (list []int, err error) {
	for n := r.Count(); n > 0; n-- {
		if b := r.Uint(); r.Err() == nil && b < slots.Blocks {
			list = append(list, int(b))
		}
	}
	return list, r.Err()
}
