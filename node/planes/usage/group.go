package usageplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/definitions"
)

// MethodPropose is the RPC by which a command reaches the leader of the plane.
const MethodPropose = "usage.propose"

// newWriter writes definitions, which are answered with the index of the view that has them.
func newWriter(g *raftgroup.Group, defs *definitions.Definitions) *raftgroup.Writer[uint64] {
	return raftgroup.NewWriter(g, MethodPropose, raftgroup.Answers[uint64]{
		Of: func(made any) (uint64, error) {
			index, _ := made.(uint64)
			refused, _ := made.(error)
			return index, refused
		},
		Append:  pack.Uint,
		Read:    (*pack.Reader).Uint,
		Index:   func() uint64 { return defs.View().Index },
		Changed: defs.Changed,
	})
}

// Propose implements definitions.Proposer. It returns once this server has the command too.
func (p *Plane) Propose(ctx context.Context, cmd []byte) (any, error) { return p.writer.Do(ctx, cmd) }

// MethodIndex is the RPC by which a server asks the leader of the plane which view has all that was decided.
const MethodIndex = "usage.index"

// index answers at the leader.
func (p *Plane) index(ctx context.Context, _ []byte) ([]byte, error) {
	if err := raftgroup.Leads(ctx, p.raft); err != nil {
		return nil, err
	}
	return pack.Uint(nil, p.Definitions.View().Index), nil
}

// leadersIndex asks the leader, which may be this server. One of an older release tells nothing: then this server goes
// by what it knows.
func (p *Plane) leadersIndex(ctx context.Context) (index uint64, err error) {
	err = p.raft.Hold(ctx, func() error {
		var reply []byte
		var err error
		if p.raft.IsLeader() {
			reply, err = p.index(ctx, nil)
		} else if reply, err = p.raft.AtLeader(ctx, MethodIndex, nil); errkind.Is(err, errkind.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		r := pack.Read(reply)
		index = r.Uint()
		return r.Err()
	})
	return index, err
}

// key waits for the key of all hashes.
func (p *Plane) key(ctx context.Context) (usage.Key, error) {
	err := p.Definitions.Await(ctx, func(v *definitions.View) bool {
		_, err := v.HashKey()
		return err == nil
	})
	if err != nil {
		return usage.Key{}, definitions.ErrNotBegun
	}
	return p.Definitions.View().HashKey()
}

// begin has the first leader make the key and the built-in products.
func (p *Plane) begin(ctx context.Context) error {
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for ctx.Err() == nil && p.Definitions.View().Key == nil {
		if p.raft.IsLeader() {
			key := make([]byte, 16)
			if _, err := rand.Read(key); err != nil {
				return err
			}
			_, err := p.Definitions.Do(ctx, definitions.Command{At: p.d.Clock.Now(),
				Begin: &definitions.Begin{Key: key, Products: builtIn()}})
			if err != nil && !errkind.Is(err, errkind.Conflict) && ctx.Err() == nil {
				p.d.Log.Warn("usage: cannot begin yet", "error", err)
			}
		}
		t := p.d.Clock.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return p.settle(ctx)
}

// settleWithin is how long a new plane waits for all the servers that are expected.
const settleWithin = time.Minute

// settle has the leader decide, once, which servers count.
func (p *Plane) settle(ctx context.Context) error {
	began := p.d.Clock.Now()
	for ctx.Err() == nil && len(p.Definitions.View().Owners) == 0 {
		list := p.counters()
		complete := len(p.members()) >= p.d.Cfg.Raft.BootstrapExpect && p.peers.allKnown(p.members())
		if p.raft.IsLeader() && len(list) > 0 && (complete || p.d.Clock.Since(began) > settleWithin) {
			if _, err := p.Definitions.Do(ctx, definitions.Command{At: p.d.Clock.Now(), Owners: list}); err != nil &&
				ctx.Err() == nil {
				p.d.Log.Warn("usage: it is settled later which servers count", "error", err)
			}
		}
		t := p.d.Clock.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	<-ctx.Done()
	return nil
}

// members are the ids of the servers of the plane's Raft group.
func (p *Plane) members() (list []string) {
	raft := p.raft.Raft.Load()
	if raft == nil {
		return nil
	}
	servers, _, err := raft.Configuration()
	if err != nil {
		return nil
	}
	for _, s := range servers {
		list = append(list, s.ID)
	}
	return list
}

// serveServers tells which servers count, and lets an operator decide: PUT {"servers": [ids]}. A server that is left
// out is asked no more, and what it has counted is missing until it is back in the list.
func (p *Plane) serveServers(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		var in struct {
			Servers []string `json:"servers"`
		}
		body, err := httpx.ReadBody(r, nil, 64<<10)
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		members := p.counters()
		for _, id := range in.Servers {
			if !slices.Contains(members, id) {
				err = fmt.Errorf("servers: %.60q is no counter of the plane: %s", id, strings.Join(members, ", "))
			}
		}
		if err != nil || len(in.Servers) == 0 {
			httpx.WriteText(w, http.StatusBadRequest, fmt.Sprint(cmp.Or(err, errors.New("servers: are missing"))))
			return
		}
		next := definitions.Command{At: p.d.Clock.Now(), Owners: in.Servers}
		if _, err := p.Definitions.Do(r.Context(), next); err != nil {
			httpx.WriteText(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	text, err := json.Marshal(map[string]any{"servers": p.Definitions.View().Owners, "members": p.counters(),
		"parts": p.shares()})
	if err != nil {
		httpx.WriteText(w, http.StatusInternalServerError, err.Error())
		return
	}
	httpx.Write(w, r, http.StatusOK, httpx.JSONType, append(text, '\n'))
}

// share is who has a part, as operators see it.
type share struct {
	Lead  string `json:"lead"`
	Copy  string `json:"copy,omitempty"`
	Epoch uint64 `json:"epoch"`
}

func (p *Plane) shares() map[string]share {
	out, view := map[string]share{}, p.Definitions.View()
	for _, name := range view.Owners {
		now := view.Part(name)
		out[name] = share{now.Lead, now.Copy, now.Epoch}
	}
	return out
}

// call asks another server of the plane, by its id.
func (p *Plane) call(ctx context.Context, server, method string, req []byte) ([]byte, error) {
	raft := p.raft.Raft.Load()
	if raft == nil {
		return nil, raftgroup.ErrForming
	}
	servers, _, err := raft.Configuration()
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s.ID == server {
			return p.d.RPC.Call(ctx, s.Address, method, req)
		}
	}
	return nil, errkind.Errorf(errkind.Unavailable, "usage: server %s is not a member any more", server)
}
