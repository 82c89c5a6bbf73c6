package task

import (
	"context"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/rights"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/telemetry"
)

// Task is one request with what it has found so far. It is of the goroutine that answers the request.
type Task struct {
	*secrets.Request
	Tables   *tables.Tables
	Entry    *mount.Entry
	Engine   engine.Engine
	View     sealed.View
	Bearer   *rights.Holder  // nil on open paths
	Judged   *policy.Verdict // by the policies; nil: they were not asked
	Used     bool            // it took a use of its token
	Last     bool            // and that was the last one
	Newcomer bool            // a login by whom nobody knew: an entity is made
	Nowhere  bool            // it names a namespace that there is not

	Account  telemetry.Account
	Flight   flight.Entry
	Left     Left
	GiveBack []func() // the room of leases in their quotas, where they do not come to be
}

// Left is what an engine of the plane's own leaves for the reply, beside its answer.
type Left struct {
	Renewed   *token.Token // what a renewal left
	RenewedID string       // its id; "" where only the accessor was given
	Leased    *Leased      // what a renewal of a lease left
	Wrap      *WrapInfo    // what stands for the answer that was wrapped again
	Passed    *Passed      // the login whose second factor this request brought
}

// Passed is a login that waited for its second factor and has it now.
type Passed struct {
	Login   *Task
	Ops     []storage.Op // what is stored with its token
	Release func()       // to be called once that is done, or is not to be
}

// Asker is who a request came from, by a name that opens nothing.
func (t *Task) Asker() string {
	if t.Bearer != nil {
		return "accessor " + t.Bearer.Accessor
	}
	return "address " + t.Remote.String()
}

// Name is what the request must have to itself.
func (t *Task) Name() string {
	if s := t.Engine.Serial(t.Request); s != "" {
		return t.Entry.Accessor + "\x00" + s
	}
	return ""
}

// Handler is an engine of the plane's own: it is given the whole task, where others see the request alone.
type Handler interface {
	engine.Engine
	Answer(ctx context.Context, t *Task, r *secrets.Request) (*secrets.Response, error)
}

// Handle has the engine answer a request: the task's, or one that was made of it.
func (t *Task) Handle(ctx context.Context, r *secrets.Request) (*secrets.Response, error) {
	if own, ok := t.Engine.(Handler); ok {
		return own.Answer(ctx, t, r)
	}
	return t.Engine.Handle(ctx, &t.View, r)
}

// Own is what a Handler answers as an engine.Engine: nothing is special, and nobody asks it without a task.
type Own struct{}

// Handle implements engine.Engine.
func (Own) Handle(context.Context, engine.View, *secrets.Request) (*secrets.Response, error) {
	return nil, errkind.New(errkind.Internal, "an engine of the plane's own was asked without a task")
}

// Exists implements engine.Engine: a write is an update.
func (Own) Exists(context.Context, engine.View, *secrets.Request) (bool, bool, error) {
	return false, false, nil
}

// Serial implements engine.Engine.
func (Own) Serial(*secrets.Request) string { return "" }

// Special implements engine.Engine.
func (Own) Special() engine.Special { return engine.Special{} }
