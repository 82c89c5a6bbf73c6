// Package tasktoken gives tasks their tokens: workload identities, and what these are exchanged for, a token of the
// secrets plane (`vault` blocks) and one of the catalog (`consul` blocks).
//
// What always holds:
//   - A task starts when it has all its tokens. While one cannot be had this task alone waits: with growing pauses that
//     are drawn by lot, so that a host's tasks do not come back all at once, and with an event that says for what.
//   - Each question to an issuer has an end (askLimit), and a host has few of them open at once (Step.Gate).
//   - A token is renewed, or replaced, when half of its life is over. A token that is another one than the task was
//     started with does what the block's change_mode says.
//   - Tokens are kept beside the task's private folder, so that a task that outlives the agent goes on with them, and
//     are given back when the task is over.
package tasktoken

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/jobs/client/allocdir"
	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// Token is a credential.
type Token struct {
	Text    string
	Expires time.Time // zero: never
	// Policies are what a token of the secrets plane gives.
	Policies []string `json:",omitempty"`
}

// Issuer is where tokens come from. An error of kind Unavailable may pass; any other is the job's, or its operator's.
type Issuer interface {
	// Identity is a workload identity of the task, by its name.
	Identity(ctx context.Context, w *allocrunner.Work, name string) (Token, error)
	// Secrets exchanges an identity for a token of the secrets plane.
	Secrets(ctx context.Context, v *jobwire.Vault, identity string) (Token, error)
	// Renew makes such a token live longer.
	Renew(ctx context.Context, v *jobwire.Vault, token string) (Token, error)
	// Catalog exchanges an identity for a token of the catalog; one without a text where that needs none.
	Catalog(ctx context.Context, identity string) (Token, error)
	// GiveBack ends a token of the secrets plane or of the catalog.
	GiveBack(ctx context.Context, kind, token string) error
}

// The kinds of tokens.
const (
	Secrets = "secrets"
	Catalog = "catalog"
)

const (
	// askLimit bounds a question to an issuer, by far: a secrets plane in trouble may take minutes (NZ-2), and who gives
	// up earlier than it answers never gets a token, and asks for ever more.
	askLimit  = 3 * time.Minute
	backLimit = 5 * time.Second // of giving a token back
	patience  = 5 * time.Second // how long a task waits before an event says what for
	lastPause = 2 * time.Minute // the longest pause between tries
)

// Step is the step of a task's start. It implements allocrunner.Step, Resumer and Ender.
type Step struct {
	Issuer Issuer
	Clock  clock.Clock
	Gate   *limit.Gate // of questions; nil: any number at once
}

// held is one token of a task.
type held struct {
	name   string // in what is kept
	kind   string // Secrets, Catalog, or "" for an identity
	what   string // for people
	env    string // "" is none
	file   string // below the task's folder; "" is none
	mode   string // change_mode
	signal string
	fixed  bool // it may expire
	obtain func(ctx context.Context) (Token, error)
	renew  func(ctx context.Context, token string) (Token, error) // nil: it is replaced
}

// keeper has the tokens of a task.
type keeper struct {
	*Step
	w    *allocrunner.Work
	mu   sync.Mutex // guards what follows, and the file
	have map[string]Token
}

// holds is what the task's blocks ask for.
func (k *keeper) holds() (list []*held) {
	w := k.w
	for _, one := range identitiesOf(w.Task) {
		h := &held{name: "identity " + one.Name, what: "the workload identity " + one.Name, mode: one.ChangeMode,
			signal: one.ChangeSignal, obtain: func(ctx context.Context) (Token, error) {
				return k.Issuer.Identity(ctx, w, one.Name)
			}}
		suffix, file := "", "secrets/nomad_token"
		if one.Name != defaultName {
			suffix, file = "_"+one.Name, "secrets/nomad_"+one.Name+".jwt"
		}
		if one.Env {
			h.env = "NOMAD_TOKEN" + suffix
		}
		if one.File {
			h.file = file
			if one.Filepath != "" {
				h.file = strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(w.Env.Replace(one.Filepath))), "/")
			}
		}
		if h.env != "" || h.file != "" {
			list = append(list, h)
		}
	}
	if v := w.Task.Vault; v != nil {
		h := &held{name: Secrets, kind: Secrets, what: "a token of the secrets plane", mode: jobwire.Get(v.ChangeMode),
			signal: jobwire.Get(v.ChangeSignal), fixed: jobwire.Get(v.AllowTokenExpiration),
			obtain: func(ctx context.Context) (Token, error) { return k.secrets(ctx, v) },
			renew: func(ctx context.Context, token string) (Token, error) {
				return k.Issuer.Renew(ctx, v, token)
			}}
		if v.Env == nil || *v.Env {
			h.env = "VAULT_TOKEN"
		}
		if !jobwire.Get(v.DisableFile) {
			h.file = "secrets/vault_token"
		}
		list = append(list, h)
	}
	if c := consulOf(w); c != nil {
		list = append(list, &held{name: Catalog, kind: Catalog, what: "a token of the catalog", mode: "noop",
			env: "CONSUL_HTTP_TOKEN", file: "secrets/consul_token",
			obtain: func(ctx context.Context) (Token, error) {
				id, err := k.Issuer.Identity(ctx, w, "consul_"+orDefault(c.Cluster))
				if err != nil {
					return id, err
				}
				return k.Issuer.Catalog(ctx, id.Text)
			}})
	}
	return list
}

const defaultName = "default"

func orDefault(name string) string {
	if name == "" {
		return defaultName
	}
	return name
}

// identitiesOf are those that a task states, by their names.
func identitiesOf(t *jobwire.Task) (list []*jobwire.WorkloadIdentity) {
	for _, one := range append(slices.Clone(t.Identities), t.Identity) {
		if one != nil {
			c := *one
			c.Name = orDefault(one.Name)
			list = append(list, &c)
		}
	}
	return list
}

func consulOf(w *allocrunner.Work) *jobwire.Consul {
	if w.Task.Consul != nil || w.Workload == nil {
		return w.Task.Consul
	}
	return w.Workload.Group.Consul
}

// secrets logs in, and makes sure that the token gives what the job wants.
func (k *keeper) secrets(ctx context.Context, v *jobwire.Vault) (Token, error) {
	id, err := k.Issuer.Identity(ctx, k.w, "vault_"+orDefault(v.Cluster))
	if err != nil {
		return id, err
	}
	t, err := k.Issuer.Secrets(ctx, v, id.Text)
	if err != nil {
		return t, err
	}
	for _, p := range v.Policies {
		if !slices.Contains(t.Policies, p) {
			return t, errkind.Errorf(errkind.Denied, "the login's role does not give the policy %q: name a role that does in "+
				"the vault block, or leave policies out", p)
		}
	}
	return t, nil
}

// Prepare implements allocrunner.Step.
func (s *Step) Prepare(ctx context.Context, w *allocrunner.Work) error {
	k := &keeper{Step: s, w: w, have: map[string]Token{}}
	list := k.holds()
	if len(list) == 0 {
		return nil
	}
	k.giveBack(k.kept()) // of the start before
	for _, h := range list {
		t, err := k.first(ctx, h)
		if err != nil {
			return err
		}
		if err := k.publish(h, t); err != nil {
			return err
		}
		if h.env != "" && t.Text != "" {
			w.Extra[h.env] = t.Text
		}
	}
	if v := w.Task.Vault; v != nil && jobwire.Get(v.Namespace) != "" && (v.Env == nil || *v.Env) {
		w.Extra["VAULT_NAMESPACE"] = jobwire.Get(v.Namespace)
	}
	k.follow(list)
	return nil
}

// Resume implements allocrunner.Resumer: what the task was started with is renewed, and what is not there is had anew.
func (s *Step) Resume(_ context.Context, w *allocrunner.Work) error {
	k := &keeper{Step: s, w: w, have: map[string]Token{}}
	list := k.holds()
	for name, t := range k.kept() {
		k.have[name] = t
		k.tell(name, t)
	}
	k.follow(list)
	return nil
}

// End implements allocrunner.Ender.
func (s *Step) End(_ context.Context, w *allocrunner.Work) {
	k := &keeper{Step: s, w: w}
	for kind, t := range k.kept() {
		if (kind == Secrets || kind == Catalog) && t.Text != "" {
			ctx, cancel := context.WithTimeout(context.Background(), backLimit)
			_ = s.Issuer.GiveBack(ctx, kind, t.Text) // it ends by itself, later
			cancel()
		}
	}
	if w.Dirs.Private != "" {
		_ = os.Remove(k.file()) // the folder goes with the allocation
	}
}

func (k *keeper) giveBack(old map[string]Token) {
	for kind, t := range old {
		if kind != Secrets && kind != Catalog || t.Text == "" {
			continue
		}
		k.w.Go(func() {
			ctx, cancel := context.WithTimeout(k.w.Life, backLimit)
			defer cancel()
			_ = k.Issuer.GiveBack(ctx, kind, t.Text) // as above
		})
	}
}

// follow keeps tokens alive as long as the task lives.
func (k *keeper) follow(list []*held) {
	for _, h := range list {
		k.mu.Lock()
		t, ok := k.have[h.name]
		k.mu.Unlock()
		if !ok || !t.Expires.IsZero() && !h.fixed {
			k.w.Go(func() { k.keep(k.w.Life, h, t) })
		}
	}
}

// ask asks an issuer, within its bounds.
func (k *keeper) ask(ctx context.Context, question func(ctx context.Context) (Token, error)) (Token, error) {
	if k.Gate != nil {
		permit, err := k.Gate.Acquire(ctx, k.w.Task.Name)
		if err != nil {
			return Token{}, errkind.E(errkind.Unavailable, "", err)
		}
		defer permit.Release()
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	t, err := question(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errkind.Errorf(errkind.Unavailable, "no answer within %s", askLimit)
	}
	return t, err
}

// first obtains a token, however long that takes. What is refused ends the start; the restart policy counts it.
func (k *keeper) first(ctx context.Context, h *held) (Token, error) {
	var why atomic.Value // a string, of the last try
	slow := k.Clock.AfterFunc(patience, func() {
		text := "The task waits for " + h.what
		if last, ok := why.Load().(string); ok {
			text += ": " + last
		}
		k.w.Note("Waiting for Token", text)
	})
	defer slow.Stop()
	retry := backoff.Backoff{Min: time.Second, Max: lastPause}
	for {
		t, err := k.ask(ctx, h.obtain)
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return t, ctx.Err()
		case !errkind.Is(err, errkind.Unavailable):
			return t, errkind.Errorf(errkind.Unavailable, "%s is refused: %s", h.what, errkind.Text(err))
		}
		why.Store(errkind.Text(err))
		if !k.pause(ctx, retry.Next()) {
			return t, ctx.Err()
		}
	}
}

func (k *keeper) pause(ctx context.Context, d time.Duration) bool {
	timer := k.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// half is when half of a token's life is over, some tenths sooner or later.
func half(now time.Time, t Token) time.Duration {
	left := t.Expires.Sub(now)
	return max(time.Duration(float64(left)*(0.4+0.2*rand.Float64())), time.Second)
}

// keep renews or replaces a token until ctx ends.
func (k *keeper) keep(ctx context.Context, h *held, t Token) {
	retry := backoff.Backoff{Min: time.Second, Max: lastPause}
	for {
		now := k.Clock.Now()
		if t.Text != "" {
			if t.Expires.IsZero() || !k.pause(ctx, half(now, t)) {
				return
			}
		}
		next, same, err := k.next(ctx, h, t)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if retry.Tries() == 0 {
				k.w.Note("Waiting for Token", "The task waits for "+h.what+": "+errkind.Text(err))
			}
			if !k.pause(ctx, retry.Next()) {
				return
			}
			continue
		case next.Text == "": // none is needed any more
			return
		}
		retry.Reset()
		t = next
		if err := k.publish(h, t); err != nil {
			k.w.Note("Waiting for Token", errkind.Text(err))
		}
		if !same && k.change(h) {
			return // the task is prepared anew
		}
	}
}

// next is a token that lives longer: the same one, or another.
func (k *keeper) next(ctx context.Context, h *held, t Token) (next Token, same bool, err error) {
	if h.renew != nil && t.Text != "" && k.Clock.Now().Before(t.Expires) {
		next, err = k.ask(ctx, func(ctx context.Context) (Token, error) { return h.renew(ctx, t.Text) })
		switch {
		case err == nil && next.Expires.After(t.Expires.Add(time.Second)):
			next.Text = t.Text
			return next, true, nil
		case errkind.Is(err, errkind.Unavailable):
			return next, false, err
		}
	}
	next, err = k.ask(ctx, h.obtain)
	return next, false, err
}

// change does what change_mode says, and reports whether the task is started again.
func (k *keeper) change(h *held) bool {
	switch h.mode {
	case "restart":
		return k.w.Restart("Task restarted: "+h.what+" is another one") == nil
	case "signal":
		if err := k.w.Signal(h.signal); err != nil {
			k.w.Note("Waiting for Token", "the signal "+h.signal+" could not be sent: "+err.Error())
		}
	}
	return false
}

// tell has other steps know a token.
func (k *keeper) tell(name string, t Token) {
	if k.w.Tokens == nil {
		return
	}
	switch name {
	case Secrets:
		k.w.Tokens.Secrets.Store(&t.Text)
	case Catalog:
		k.w.Tokens.Catalog.Store(&t.Text)
	}
}

// publish gives the task a token, and keeps it.
func (k *keeper) publish(h *held, t Token) error {
	k.tell(h.name, t)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.have[h.name] = t
	if k.w.Dirs.Task == "" {
		return nil // a simulated node has no folders
	}
	if h.file != "" && t.Text != "" {
		if err := allocdir.Replace(k.w.Dirs.Task, h.file, []byte(t.Text), 0o644); err != nil {
			return errkind.E(errkind.Invalid, h.file, err)
		}
	}
	if k.w.Dirs.Private == "" {
		return nil
	}
	text, err := json.Marshal(k.have)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(k.file())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return allocdir.Replace(dir, name, text, 0o600)
}

// file is beside Dirs.Private, which goes when the driver has ended the task.
func (k *keeper) file() string {
	return filepath.Join(filepath.Dir(k.w.Dirs.Private), ".tokens-"+filepath.Base(k.w.Dirs.Private)+".json")
}

// kept are the tokens of the start before. What cannot be read is not there.
func (k *keeper) kept() (old map[string]Token) {
	if k.w.Dirs.Private == "" {
		return nil
	}
	text, err := os.ReadFile(k.file())
	if err != nil || json.Unmarshal(text, &old) != nil {
		return nil
	}
	return old
}
