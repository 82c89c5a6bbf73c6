// Package grants resolves secrets to what they allow, and keeps the objects that say so.
//
// A Resolver does it on a server, from the replicated records; an Agent on a client agent,
// by asking a server. A Keeper changes the records: tokens, policies, roles, auth methods
// and binding rules, with the contract's checks. All are safe for concurrent use.
//
// What always holds on a server: an answer is never older than the State that it is asked
// for. Cached rights are found out by the indexes of the records, not by age, so that a
// revoked token or a changed policy counts from the next request on; an expired token counts
// as unknown at once. Tokens with the same policies share one compiled Authorizer.
//
// Secrets are looked up by their hash: how long a look-up takes says nothing about a secret.
package grants

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

var errUnknown = errkind.New(errkind.Denied, "ACL not found")

// SecretName is the record name of a token's secret.
func SecretName(secret string) string {
	h := sha256.Sum256([]byte("corbel acl secret " + secret))
	return hex.EncodeToString(h[:])
}

// Config configures a Resolver.
type Config struct {
	// Now returns the store's generation and a State that is not older.
	Now        func() (generation uint64, st *statestore.State)
	Datacenter string
	NodeName   string
	// AllowByDefault is acl.default_policy: what holds where no rule speaks.
	AllowByDefault bool
	// Recovery is acl.tokens.agent_recovery; nil or "" is none.
	Recovery func() string
	// InitialManagement may do everything until the leader has stored it; from then on the stored token counts.
	InitialManagement string
	Clock             clock.Clock
}

// Resolver turns secrets into grants from the replicated records.
type Resolver struct {
	cfg      Config
	fallback acl.Level
	known    recent[string, *known]

	compile  sync.Mutex // guards what follows; held while compiling, so that equal sets are compiled once
	sets     recent[string, *acl.Authorizer]
	rules    recent[[sha256.Size]byte, []acl.Rule]
	recovery *acl.Grant
}

// known is a secret that was resolved, and from what.
type known struct {
	at     version
	record *catalog.Record // nil for the anonymous token while it is not stored
	grant  *acl.Grant
}

// version tells whether what a grant was made from is still the same.
type version struct{ generation, tokens, policies, roles uint64 }

func versionOf(generation uint64, st *statestore.State) version {
	return version{generation, st.RecordsIndex(catalog.RecordACLToken), st.RecordsIndex(catalog.RecordACLPolicy),
		st.RecordsIndex(catalog.RecordACLRole)}
}

const (
	keptTokens = 1 << 15
	keptSets   = 1 << 12
	keptRules  = 1 << 12
)

// NewResolver starts nothing.
func NewResolver(cfg Config) *Resolver {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	r := &Resolver{cfg: cfg, fallback: fallback(cfg.AllowByDefault), recovery: recoveryGrant(cfg.NodeName)}
	r.known.limit, r.sets.limit, r.rules.limit = keptTokens, keptSets, keptRules
	return r
}

func fallback(allow bool) acl.Level {
	if allow {
		return acl.Write
	}
	return acl.Deny
}

// recoveryGrant is what the agent's recovery token allows: to look after this agent.
func recoveryGrant(node string) *acl.Grant {
	return &acl.Grant{Accessor: "agent-recovery:" + node, Authorizer: acl.Compile(acl.Deny, []acl.Rule{
		{Resource: acl.Agent, Name: node, Level: acl.Write}, {Resource: acl.Node, Prefix: true, Level: acl.Read}})}
}

func isRecovery(get func() string, secret string) bool { return get != nil && same(get(), secret) }

// same compares in constant time; "" is the same as nothing.
func same(want, secret string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(secret)) == 1
}

// initial is the management token of the configuration before it is stored.
var initial = &acl.Grant{Authorizer: acl.Unlimited.Authorizer, Accessor: "initial-management"}

// Grant returns what the secret allows; "" is the anonymous token. Kind Denied: no such token, or
// its time is over. The same pointer is returned for as long as nothing about the token changed.
func (r *Resolver) Grant(_ context.Context, secret string) (*acl.Grant, error) {
	if secret == "" {
		secret = acl.AnonymousSecret
	}
	generation, st := r.cfg.Now()
	now := versionOf(generation, st)
	k, ok := r.known.get(secret)
	if !ok || k.at != now {
		var err error
		if k, err = r.refresh(st, now, secret, k); err != nil {
			return nil, err
		}
	}
	if t := k.grant.Token; t != nil && t.ExpirationTime != nil && t.Expired(r.cfg.Clock.Now()) {
		return nil, errUnknown
	}
	return k.grant, nil
}

// GrantWithin is Grant: what the State says is never old.
func (r *Resolver) GrantWithin(ctx context.Context, secret string, _ time.Duration) (*acl.Grant, error) {
	return r.Grant(ctx, secret)
}

// refresh resolves a secret anew, or finds that what is known still holds.
func (r *Resolver) refresh(st *statestore.State, now version, secret string, old *known) (*known, error) {
	record := st.RecordByName(catalog.RecordACLToken, SecretName(secret))
	if record == nil && secret != acl.AnonymousSecret {
		switch {
		case isRecovery(r.cfg.Recovery, secret):
			return &known{at: now, grant: r.recovery}, nil
		case same(r.cfg.InitialManagement, secret) && st.Record(catalog.RecordACLBootstrap, bootstrapKey) == nil:
			return &known{at: now, grant: initial}, nil
		}
		return nil, errUnknown
	}
	k := &known{at: now, record: record}
	if old != nil && old.record == record && old.at.generation == now.generation &&
		old.at.policies == now.policies && old.at.roles == now.roles {
		k.grant = old.grant
	} else {
		var err error
		if k.grant, err = r.resolve(st, record); err != nil {
			return nil, err
		}
		// A change of some other policy leaves this grant as it was: parked queries may go on.
		if old != nil && old.record == record && old.grant.Authorizer == k.grant.Authorizer {
			k.grant = old.grant
		}
	}
	r.known.put(secret, k)
	return k, nil
}

func (r *Resolver) resolve(st *statestore.State, record *catalog.Record) (*acl.Grant, error) {
	if record == nil {
		return &acl.Grant{Accessor: acl.AnonymousAccessor, Authorizer: r.authorizer(nil)}, nil
	}
	t, err := acl.Decode[acl.Token](record.Value, record.CreateIndex, record.ModifyIndex)
	if err != nil {
		return nil, err
	}
	policies, _ := Expand(st, t)
	texts := make([]string, 0, len(policies))
	for _, p := range policies {
		if p.HoldsIn(r.cfg.Datacenter) {
			texts = append(texts, p.Rules)
		}
	}
	return &acl.Grant{Accessor: t.AccessorID, Token: t, Authorizer: r.authorizer(texts)}, nil
}

// authorizer compiles a set of rules' texts, or finds it compiled. Texts that cannot be read give
// nothing: what is stored was read before, so that takes a newer server's words.
func (r *Resolver) authorizer(texts []string) *acl.Authorizer {
	keys, key := sortedSums(texts)
	r.compile.Lock()
	defer r.compile.Unlock()
	if a, ok := r.sets.get(key); ok {
		return a
	}
	parsed := make([][]acl.Rule, 0, len(keys))
	for sum, text := range keys {
		rules, ok := r.rules.get(sum)
		if !ok {
			var err error
			if rules, err = acl.Parse(text); err != nil {
				rules = nil
			}
			r.rules.put(sum, rules)
		}
		parsed = append(parsed, rules)
	}
	a := acl.Compile(r.fallback, parsed...)
	r.sets.put(key, a)
	return a
}
