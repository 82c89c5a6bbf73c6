package copies

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage/cache"
	"corbel.dev/corbel/usage/slots"
)

// The RPCs between hosts of the cache.
const (
	MethodReset   = "usage.cache.reset"   // empty some blocks: their owner makes a copy
	MethodCopy    = "usage.cache.copy"    // changes of an owner's
	MethodWhole   = "usage.cache.whole"   // copies of some blocks miss nothing from now on
	MethodForget  = "usage.cache.forget"  // copies of some blocks are needed no more
	MethodRelease = "usage.cache.release" // a new owner asks for some blocks
	MethodGive    = "usage.cache.give"    // values of blocks that were released
)

// Methods are the RPCs that a host answers to others.
func (h *Host) Methods() map[string]func(context.Context, []byte) ([]byte, error) {
	return map[string]func(context.Context, []byte) ([]byte, error){MethodReset: h.serveReset, MethodCopy: h.serveCopy,
		MethodWhole: h.serveWhole, MethodForget: h.serveForget, MethodRelease: h.serveRelease, MethodGive: h.serveGive}
}

var (
	errOwner   = errkind.New(errkind.Conflict, "usage cache: this host owns these keys")
	errSession = errkind.New(errkind.NotFound, "usage cache: these copies are not known here")
	errOlder   = errkind.New(errkind.Conflict, "usage cache: who asks knows less of the catalog")
	errOrder   = errkind.New(errkind.Corrupt, "usage cache: changes are missing")
)

// ours says whether this host owns a block, or is about to.
func (h *Host) ours(b int) bool {
	return h.table.Load().own[b] == mine || h.cfg.View().owner(b) == h.cfg.Self
}

// about reads whose blocks a request is about.
func about(method string, req []byte) (from string, session uint64, blocks []int, err error) {
	r := pack.Read(req)
	from, session = r.String(), r.Uint()
	if blocks, err = readBlocks(r); err != nil || session == 0 {
		return "", 0, nil, errkind.E(errkind.Invalid, method, err)
	}
	return from, session, blocks, nil
}

func (h *Host) serveReset(_ context.Context, req []byte) ([]byte, error) {
	from, session, blocks, err := about(MethodReset, req)
	if err != nil {
		return nil, err
	}
	var set blockSet
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(blocks, h.ours) {
		return nil, errOwner
	}
	if h.heard[from].session != session {
		h.heard[from] = heard{session: session}
	}
	for _, b := range blocks {
		set[b] = true
		h.held[b], h.had[b], h.lent[b] = held{of: from, session: session}, false, lent{}
	}
	h.cache.Drop(set.has)
	return nil, nil
}

func (h *Host) serveCopy(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	from, session, first, count := r.String(), r.Uint(), r.Uint(), r.Uint()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, MethodCopy, r.Err())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.heard[from]
	switch {
	case at.session != session || session == 0:
		return nil, errSession
	case first+count <= at.next:
		return nil, nil // it was sent again
	case first != at.next:
		return nil, errOrder
	}
	for range count {
		change := r.Bytes()
		if r.Err() != nil || len(change) == 0 {
			delete(h.heard, from)
			return nil, errkind.E(errkind.Invalid, MethodCopy, r.Err())
		}
		if err := h.apply(from, session, change); err != nil {
			delete(h.heard, from) // a part of it was done
			return nil, err
		}
	}
	at.next = first + count
	h.heard[from] = at
	return nil, nil
}

// apply does one change. It needs mu.
func (h *Host) apply(from string, session uint64, change []byte) error {
	if change[0] == cleared[0] {
		var set blockSet
		for b, x := range h.held {
			set[b] = x.of == from && x.session == session
		}
		h.cache.Drop(set.has)
		return nil
	}
	key, err := cache.KeyOf(change)
	if err != nil {
		return err
	}
	b := blockOf(key)
	if x := h.held[b]; x.of == "" && !h.ours(b) {
		return nil // it was said that this copy is needed no more
	} else if x.of != from || x.session != session {
		if h.ours(b) {
			return errOwner
		}
		return errSession // the copy has another owner by now
	}
	_, err = h.cache.Apply(change)
	return err
}

func (h *Host) serveWhole(_ context.Context, req []byte) ([]byte, error) {
	from, session, blocks, err := about(MethodWhole, req)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range blocks {
		if x := h.held[b]; x.of != from || x.session != session {
			return nil, errSession
		}
	}
	for _, b := range blocks {
		h.held[b].whole = true
	}
	return nil, nil
}

func (h *Host) serveForget(_ context.Context, req []byte) ([]byte, error) {
	from, session, blocks, err := about(MethodForget, req)
	if err != nil {
		return nil, err
	}
	var set blockSet
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range blocks {
		if x := h.held[b]; x.of == from && x.session == session {
			h.held[b], set[b] = held{}, true
		}
	}
	h.cache.Drop(set.has)
	return nil, nil
}

// serveRelease lets blocks go to a host that the catalog says owns them, and answers with those whose values are given.
func (h *Host) serveRelease(ctx context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	to, index, heir := r.String(), r.Uint(), r.Uint()
	var blocks, needs []int
	for n := r.Count(); n > 0; n-- {
		b, need := r.Uint(), r.Bool()
		if r.Err() != nil || b >= slots.Blocks {
			return nil, errkind.E(errkind.Invalid, MethodRelease, r.Err())
		}
		if blocks = append(blocks, int(b)); need {
			needs = append(needs, int(b))
		}
	}
	if v := h.cfg.View(); v.Index > index && slices.ContainsFunc(blocks, func(b int) bool { return v.owner(b) != to }) {
		return nil, errOlder
	}
	h.change(func(t *table) {
		for _, b := range blocks {
			if t.own[b] == mine {
				t.own[b], t.givenTo[b], t.asOf[b], t.imports[b] = given, to, index, nil
			}
			t.left[b] = time.Time{} // who asks knows that it is the owner
		}
	})
	h.cache.Pass() // who had a key when the blocks were let go has it no more
	for _, l := range h.table.Load().links {
		_ = l.await(h.cfg.Clock.Now().Add(releaseWait / 3)) // what has no copy was not acknowledged
	}
	var give blockSet
	h.mu.Lock()
	for _, b := range needs {
		x := h.held[b]
		asks := lent{to, index}
		give[b] = h.had[b] || h.lent[b] == asks || heir != 0 && x == (held{of: to, session: heir, whole: true})
		if h.had[b] {
			h.lent[b] = asks
		}
	}
	for _, b := range blocks {
		h.had[b] = false
	}
	h.mu.Unlock()
	list := give.list()
	if len(list) > 0 && !h.give(to, &give) {
		list = nil
	}
	return appendBlocks(nil, list), nil
}

// give gives another host the values of some blocks; false where this host ends.
func (h *Host) give(to string, blocks *blockSet) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx := h.ctx
	if ctx == nil || ctx.Err() != nil || h.cfg.Keeps {
		return false
	}
	h.giving.Add(1)
	h.group.Go(func() {
		defer h.giving.Add(-1)
		keys, err := h.giveAll(ctx, to, blocks)
		if err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("the cache could not give its keys to another host: they are made anew there", "host", to,
				"given", keys, "error", err)
			return
		}
		h.cfg.Log.Info("the cache gave its keys to another host", "host", to, "keys", keys)
	})
	return true
}

// giveWait is how long a host may take to take a part in.
const giveWait = 5 * time.Second

func (h *Host) giveAll(ctx context.Context, to string, blocks *blockSet) (keys int, err error) {
	began, sent := h.cfg.Clock.Now(), 0
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var chunk []byte
		chunk, cursor = h.cache.Dump(nil, cursor, giveBytes, func(key string) bool {
			if !blocks.has(key) {
				return false
			}
			keys++
			return true
		})
		if len(chunk) == 0 && cursor != 0 {
			continue
		}
		req := append(pack.Bool(pack.String(nil, h.cfg.Self), cursor == 0), chunk...)
		one, cancel := context.WithTimeout(ctx, giveWait)
		_, err = h.cfg.Call(one, to, MethodGive, req)
		cancel()
		if err != nil {
			return keys, err
		}
		sent += len(chunk)
		if rest := time.Duration(float64(sent)/float64(h.cfg.Rate)*float64(time.Second)) -
			h.cfg.Clock.Since(began); rest > 0 && cursor != 0 {
			pause(ctx, h.cfg.Clock, rest)
		}
	}
	return keys, nil
}

// giveBytes is about how much is given at once.
const giveBytes = 512 << 10

func (h *Host) serveGive(_ context.Context, req []byte) ([]byte, error) {
	r := pack.Read(req)
	from, last := r.String(), r.Bool()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, MethodGive, r.Err())
	}
	t := h.awaitImport(from)
	_, err := h.cache.Take(req[len(req)-r.Len():], func(key string) bool {
		im := t.imports[blockOf(key)]
		return im != nil && im.from == from && im.may(key)
	})
	if last || err != nil {
		for _, im := range t.imports {
			if im != nil && im.from == from {
				im.close()
			}
		}
		h.wake()
	}
	return nil, err
}

// awaitImport returns the table in which the blocks are that a host gives: its first part may come before the answer
// that says so.
func (h *Host) awaitImport(from string) *table {
	end := h.cfg.Clock.Now().Add(releaseWait)
	for {
		t := h.table.Load()
		for _, im := range t.imports {
			if im != nil && im.from == from {
				return t
			}
		}
		rest := end.Sub(h.cfg.Clock.Now())
		if rest <= 0 {
			return t
		}
		timer := h.cfg.Clock.NewTimer(rest)
		select {
		case <-t.next:
		case <-timer.C:
		}
		timer.Stop()
	}
}
