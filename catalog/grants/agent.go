package grants

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// What an agent does while no server answers, as acl.down_policy names it.
const (
	DownAllow       = "allow"
	DownDeny        = "deny"
	DownExtendCache = "extend-cache" // what is known goes on to hold; what is not is denied
	DownAsyncCache  = "async-cache"  // as extend-cache; and what is old is looked up after it was used
)

// Resolution is what a server tells an agent about a secret.
type Resolution struct {
	Accessor string
	Expires  time.Time // zero: never
	Rules    []string  // the policies' texts
}

// Resolve answers an agent. Kind Denied: there is no such token.
func (r *Resolver) Resolve(ctx context.Context, secret string) (Resolution, error) {
	g, err := r.Grant(ctx, secret)
	if err != nil {
		return Resolution{}, err
	}
	out := Resolution{Accessor: g.Accessor}
	if g == initial {
		out.Rules = []string{acl.GlobalManagementRules}
	}
	if g.Token == nil {
		return out, nil
	}
	if g.Token.ExpirationTime != nil {
		out.Expires = *g.Token.ExpirationTime
	}
	_, st := r.cfg.Now()
	policies, _ := Expand(st, g.Token)
	for _, p := range policies {
		if p.HoldsIn(r.cfg.Datacenter) {
			out.Rules = append(out.Rules, p.Rules)
		}
	}
	return out, nil
}

// AppendPack appends the wire form.
func (r *Resolution) AppendPack(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, r.Accessor)
	end := int64(0)
	if !r.Expires.IsZero() {
		end = r.Expires.UnixNano()
	}
	b = pack.Uint(pack.Int(b, end), uint64(len(r.Rules)))
	for _, text := range r.Rules {
		b = pack.String(b, text)
	}
	return pack.End(b, mark)
}

// ReadResolution reads what AppendPack wrote.
func ReadResolution(b []byte) (r Resolution, err error) {
	rd := pack.Read(b).Record()
	r.Accessor = rd.String()
	if end := rd.Int(); end != 0 {
		r.Expires = time.Unix(0, end)
	}
	for range rd.Count() {
		r.Rules = append(r.Rules, rd.String())
	}
	return r, errkind.E(errkind.Corrupt, "read a resolved token", rd.Err())
}

// AgentConfig configures an Agent.
type AgentConfig struct {
	// Fetch asks a server. Kind Denied: there is no such token; any other error: no server answered.
	Fetch          func(ctx context.Context, secret string) (Resolution, error)
	NodeName       string
	AllowByDefault bool
	DownPolicy     string
	TTL            time.Duration // how long what a server said is trusted without asking again
	Recovery       func() string
	Clock          clock.Clock
	Logger         *slog.Logger
}

// fetchTimeout bounds asking a server; a request waits for it.
const fetchTimeout = 5 * time.Second

// Agent turns secrets into grants on a process that has no records: it asks servers and
// keeps what they said. An expired token is refused at once, a revoked one within TTL.
type Agent struct {
	cfg      AgentConfig
	compiler *Resolver // compiles and shares authorizers; it resolves nothing here
	known    recent[string, *told]
	later    chan string // secrets to look up in the background; when it is full they wait for their next use

	mu      sync.Mutex // guards fetches
	fetches map[string]*fetch
}

// told is what a server said, and when.
type told struct {
	grant   *acl.Grant // nil: there is no such token
	expires time.Time
	at      time.Time
}

// fetch is a question under way that several requests may wait for.
type fetch struct {
	done chan struct{}
	told *told
	err  error
}

// keptAgentTokens and laterQueue bound what an agent keeps and does later.
const (
	keptAgentTokens = 1 << 12
	laterQueue      = 256
)

// NewAgent starts nothing; Run is needed for async-cache alone.
func NewAgent(cfg AgentConfig) *Agent {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{cfg: cfg, later: make(chan string, laterQueue), fetches: map[string]*fetch{},
		compiler: NewResolver(Config{NodeName: cfg.NodeName, AllowByDefault: cfg.AllowByDefault})}
	a.known.limit = keptAgentTokens
	return a
}

// Run looks up what async-cache put off, until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case secret := <-a.later:
			if t, ok := a.known.get(secret); !ok || !a.fresh(t) {
				_, _ = a.fetch(ctx, secret) // an error leaves what is known
			}
		}
	}
}

func (a *Agent) fresh(t *told) bool { return a.cfg.Clock.Since(t.at) < a.cfg.TTL }

// Grant is Resolver.Grant on an agent.
func (a *Agent) Grant(ctx context.Context, secret string) (*acl.Grant, error) {
	return a.GrantWithin(ctx, secret, math.MaxInt64)
}

// GrantWithin trusts what a server said for at most age, however long TTL is: for streams, which a revoked token is
// to lose soon.
func (a *Agent) GrantWithin(ctx context.Context, secret string, age time.Duration) (*acl.Grant, error) {
	if secret == "" {
		secret = acl.AnonymousSecret
	}
	if isRecovery(a.cfg.Recovery, secret) {
		return a.compiler.recovery, nil
	}
	t, ok := a.known.get(secret)
	var since time.Duration
	if ok {
		since = a.cfg.Clock.Since(t.at)
	}
	switch {
	case ok && since < min(age, a.cfg.TTL):
		return a.use(t)
	case ok && since < age && a.cfg.DownPolicy == DownAsyncCache:
		select {
		case a.later <- secret:
		default:
		}
		return a.use(t)
	}
	now, err := a.fetch(ctx, secret)
	if err == nil {
		return a.use(now)
	}
	switch {
	case a.cfg.DownPolicy == DownAllow:
		return a.down(acl.Write), nil
	case ok && a.cfg.DownPolicy != DownDeny:
		return a.use(t)
	}
	a.cfg.Logger.Warn("no server resolves tokens, so this request is denied", "err", err)
	return a.down(acl.Deny), nil
}

func (a *Agent) use(t *told) (*acl.Grant, error) {
	if t.grant == nil || !t.expires.IsZero() && !a.cfg.Clock.Now().Before(t.expires) {
		return nil, errUnknown
	}
	return t.grant, nil
}

// down is what holds for everybody while no server answers.
func (a *Agent) down(l acl.Level) *acl.Grant {
	return &acl.Grant{Accessor: "unknown", Authorizer: acl.Compile(l)}
}

// fetch asks a server; those who want the same secret meanwhile get the same answer.
func (a *Agent) fetch(ctx context.Context, secret string) (*told, error) {
	a.mu.Lock()
	f := a.fetches[secret]
	if f != nil {
		a.mu.Unlock()
		select {
		case <-f.done:
			return f.told, f.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f = &fetch{done: make(chan struct{})}
	a.fetches[secret] = f
	a.mu.Unlock()
	// Others may wait for this answer: it does not end with the request that asked first.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	f.told, f.err = a.ask(ask, secret)
	a.mu.Lock()
	delete(a.fetches, secret)
	a.mu.Unlock()
	close(f.done)
	return f.told, f.err
}

func (a *Agent) ask(ctx context.Context, secret string) (*told, error) {
	r, err := a.cfg.Fetch(ctx, secret)
	t := &told{at: a.cfg.Clock.Now()}
	switch {
	case errkind.Is(err, errkind.Denied):
	case err != nil:
		return nil, err
	default:
		t.expires = r.Expires
		t.grant = &acl.Grant{Accessor: r.Accessor, Authorizer: a.compiler.authorizer(r.Rules)}
	}
	a.known.put(secret, t)
	return t, nil
}
