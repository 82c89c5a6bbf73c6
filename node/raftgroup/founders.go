package raftgroup

import (
	"context"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/base"
)

// foundersKey is the record of the catalog, of kind RecordSystem, that says with which servers a plane's group began.
// The plane may be switched on years after the cluster was founded, on one server after the other: the catalog
// decides, once, who begins it, and whoever is not among them joins.
func (p *Group) foundersKey() string { return p.Name + "-founders" }

// gatherFounders is how long the catalog's leader waits for all servers to have the plane before it begins with those
// that do.
const gatherFounders = 5 * time.Second

// founders says with whom to begin a plane's group; an empty list joins one that exists or goes on with the
// state on disk.
func (p *Group) founders(ctx context.Context) ([]group.Server, bool) {
	if p.joined() {
		return nil, true
	}
	began, silent := p.Base.Clock.Now(), map[string]time.Time{}
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		if list, ok := p.readFounders(); ok {
			return list, true
		}
		if p.catalog.LeaseHeld() {
			if list := p.confirmed(ctx, p.couldFound(p.Base.Clock.Since(began) > gatherFounders), silent); len(list) > 0 {
				if err := p.writeFounders(ctx, list); err != nil && ctx.Err() == nil {
					p.Base.Log.Debug("the plane could not be founded yet", "plane", p.Name, "error", err)
				}
			}
		}
		t := p.Base.Clock.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, false
		}
	}
}

// readFounders returns with whom the group begins, an empty list where this server is none of them. A record of
// servers that are all gone, as a restored snapshot of another cluster has, says nothing.
func (p *Group) readFounders() ([]group.Server, bool) {
	record := p.Registry.State().Record(catalog.RecordSystem, p.foundersKey())
	if record == nil {
		return nil, false
	}
	list := decodeFounders(record.Value)
	if slices.ContainsFunc(list, func(s group.Server) bool { return s.ID == p.Base.ID }) {
		return list, true
	}
	for _, m := range p.Base.Pool.Members(member.ActSuggestServer) {
		if m.Tags[p.joinedTag] != "" || slices.ContainsFunc(list,
			func(s group.Server) bool { return s.ID == m.Tags["id"] }) {
			return nil, true
		}
	}
	return nil, false
}

// couldFound lists the servers that would begin the group now; nil is to wait for more.
func (p *Group) couldFound(waited bool) (list []group.Server) {
	for _, m := range p.Base.Pool.Members(member.ActSuggestServer) {
		switch {
		case m.Status != member.Alive:
		case m.Tags[p.joinedTag] != "": // the group is there
			return nil
		case m.Tags["read_replica"] == "1":
		case p.takesPart(m):
			list = append(list, group.Server{ID: m.Tags["id"], Address: base.MemberRPC(m), Voter: true})
		case !waited:
			return nil
		}
	}
	slices.SortFunc(list, func(a, b group.Server) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (p *Group) writeFounders(ctx context.Context, list []group.Server) error {
	ctx, cancel := context.WithTimeout(ctx, foundersTimeout)
	defer cancel()
	r := catalog.Record{Kind: catalog.RecordSystem, Key: p.foundersKey(), Value: encodeFounders(list)}
	if old := p.Registry.State().Record(r.Kind, r.Key); old != nil {
		r.ModifyIndex = old.ModifyIndex
	}
	_, _, err := p.Registry.SetRecords(ctx, catalog.RecordOp{Verb: catalog.RecordCAS, Record: r})
	return err
}

func encodeFounders(list []group.Server) []byte {
	b, mark := pack.Begin(nil)
	b = pack.Uint(b, uint64(len(list)))
	for _, s := range list {
		b = pack.String(pack.String(b, s.ID), s.Address)
	}
	return pack.End(b, mark)
}

func decodeFounders(b []byte) (list []group.Server) {
	outer := pack.Read(b)
	r := outer.Record()
	for n := r.Count(); n > 0 && r.Err() == nil; n-- {
		list = append(list, group.Server{ID: r.String(), Address: r.String(), Voter: true})
	}
	if r.Err() != nil || outer.Err() != nil {
		return nil
	}
	return list
}

// foundersTimeout bounds one attempt to write the record.
const foundersTimeout = 10 * time.Second
