package monitorplane

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/monitor/fates"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// MethodFates asks a server what became of the newest event of a check at its handlers.
const MethodFates = "monitor.fates"

// fateTime bounds how long another server may take to answer; the others' answers are told without it.
const fateTime = 2 * time.Second

// openFates has the other servers ask for what this one remembers.
func openFates(d *plane.Doors, book *fates.Book) {
	d.Handle(wire.Servers, MethodFates, func(_ context.Context, b []byte) ([]byte, error) {
		var k fates.Key
		if err := json.Unmarshal(b, &k); err != nil {
			return nil, err
		}
		return json.Marshal(book.Of(k))
	})
}

// fates tells what became of the newest event of a check, on whichever servers its handlers ran: an entity's events are
// at one server at a time, and that changes.
func (m *Plane) fates(ctx context.Context, k fates.Key) ([]fates.Fate, error) {
	ctx, cancel := context.WithTimeout(ctx, fateTime)
	defer cancel()
	question, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	all := []fates.Fate{}
	add := func(server string, list []fates.Fate) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range list {
			f.Server = server
			all = append(all, f)
		}
	}
	add(m.d.Cfg.Node.Name, m.Pipes.fates.Of(k))
	for _, s := range m.d.Pool.Members(member.ActAskServer) {
		if s.Tags[Tag] == "" || s.Status != member.Alive || s.Tags["id"] == m.d.ID {
			continue
		}
		asking.Go(func() {
			b, err := m.d.RPC.Call(ctx, base.MemberRPC(s), MethodFates, question)
			var list []fates.Fate
			if err == nil && json.Unmarshal(b, &list) == nil {
				add(s.Name, list)
			}
		})
	}
	asking.Wait()
	return fates.Newest(all), nil
}
