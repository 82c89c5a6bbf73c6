package doctorplane

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"corbel.dev/corbel/api/corbelapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// MethodTell is the RPC that brings the evidence of an agent that found something to a server.
const MethodTell = "doctor.tell"

// maxTold bounds the agents whose evidence a server keeps, toldFor for how long, maxToldBytes how large one is.
const (
	maxTold      = 64
	toldFor      = time.Minute
	maxToldBytes = 1 << 20
)

// telling is the doctor's role on a client agent: it tells a server what it found.
type telling struct {
	d      *plane.Doors
	outbox chan doctor.Evidence // the newest alone
}

func (t *telling) evidence() []doctor.Evidence { return nil }

// tell hands evidence to run; what is there already is older.
func (t *telling) tell(e doctor.Evidence) {
	for {
		select {
		case t.outbox <- e:
			return
		default:
		}
		select {
		case <-t.outbox:
		default:
		}
	}
}

// run brings what this agent found to a server.
func (t *telling) run(ctx context.Context) {
	for {
		var e doctor.Evidence
		select {
		case <-ctx.Done():
			return
		case e = <-t.outbox:
		}
		b, err := json.Marshal(e)
		if err != nil || len(b) > maxToldBytes {
			continue
		}
		server, err := t.d.AnyServer()
		if err != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, corbelapi.GatherTimeout)
		_, err = t.d.RPC.Call(call, server, MethodTell, pack.Bytes(pack.String(nil, t.d.Tokens.Own()), b))
		cancel()
		if err != nil {
			t.d.Log.Debug("doctor: a server could not be told", "server", server, "error", err)
		}
	}
}

// hearing is the doctor's role on a server: it keeps what agents told it.
type hearing struct {
	d      *plane.Doors
	access Access

	mu   sync.Mutex // guards told
	told map[string]doctor.Evidence
}

func (h *hearing) run(context.Context) {}

func (h *hearing) evidence() (out []doctor.Evidence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, e := range h.told {
		if time.Since(e.At) > toldFor {
			delete(h.told, name)
			continue
		}
		out = append(out, e)
	}
	return out
}

// listen takes an agent's evidence; beyond maxTold the oldest goes.
func (h *hearing) listen(ctx context.Context, req []byte) ([]byte, error) {
	var e doctor.Evidence
	rd := pack.Read(req)
	token, told := rd.String(), rd.Bytes()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, "evidence", rd.Err())
	}
	if len(told) > maxToldBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "evidence of %d bytes", len(told))
	}
	if err := json.Unmarshal(told, &e); err != nil {
		return nil, errkind.E(errkind.Invalid, "evidence", err)
	}
	// Who may register the node may tell about it.
	grant, err := h.access.Grant(ctx, token)
	if err == nil {
		err = grant.Check(acl.Node, e.Member, acl.Write)
	}
	if err != nil {
		return nil, err
	}
	if m, ok := h.d.Pool.Member(member.ActAskMember, e.Member); !ok || m.Tags["role"] == base.RoleServer {
		return nil, errkind.Errorf(errkind.Invalid, "%q is no agent of this cluster", e.Member)
	}
	e.At = time.Now() // by this server's clock, which says when it is too old
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.told[e.Member]; !known && len(h.told) >= maxTold {
		oldest := ""
		for name, o := range h.told {
			if oldest == "" || o.At.Before(h.told[oldest].At) {
				oldest = name
			}
		}
		delete(h.told, oldest)
	}
	h.told[e.Member] = e
	return nil, nil
}
