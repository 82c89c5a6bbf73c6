package keeper

import (
	"context"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/mounting"
	"corbel.dev/corbel/secrets/task"
)

// sleeper is an engine that may not wake; it answers all the same, as a process does that starts a moment later.
type sleeper struct {
	task.Own
	asleep *atomic.Bool
}

func (s sleeper) Wake(context.Context) (engine.Special, error) {
	if s.asleep.Load() {
		return engine.Special{}, errkind.New(errkind.Unavailable, "it does not start")
	}
	return engine.Special{Open: []string{"open"}, Protected: []string{"root"}}, nil
}

func (sleeper) Handle(context.Context, engine.View, *secrets.Request) (*secrets.Response, error) {
	return &secrets.Response{Data: []byte(`{"v":1}`)}, nil
}

// TestAsleep: of an engine that did not wake nothing is known of sudo, so nobody is answered, also when it would answer
// by then.
func TestAsleep(t *testing.T) {
	h := newHouse(t)
	var asleep atomic.Bool
	h.owners.mounts.Kinds["sleeper"] = mounting.Kind{Side: mounting.Secret,
		Make: func(*mount.Entry, []byte) engine.Engine { return sleeper{asleep: &asleep} }}
	h.ok(secrets.Update, "sys/mounts/s", `{"type":"sleeper"}`)
	h.policy("reads", `path "s/*" { capabilities = ["read"] }`)
	reads := h.token(`{"policies":["reads"]}`)
	h.refused(errkind.Denied, reads, secrets.Read, "s/root", "")
	if _, err := h.as(reads, secrets.Read, "s/a", ""); err != nil {
		t.Error(err)
	}
	if _, err := h.as("", secrets.Read, "s/open", ""); err != nil {
		t.Error(err)
	}
	asleep.Store(true)
	h.refused(errkind.Unavailable, reads, secrets.Read, "s/root", "")
	h.refused(errkind.Unavailable, reads, secrets.Read, "s/a", "")
	h.refused(errkind.Unavailable, "", secrets.Read, "s/open", "")
	h.refused(errkind.Denied, "no token", secrets.Read, "s/open", "")
}
