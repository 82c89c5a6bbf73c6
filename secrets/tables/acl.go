package tables

import (
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/secrets/policy"
)

// DefaultPolicy is what every token may do unless it was made without (contract 2.4).
const DefaultPolicy = `# A token may look at itself, renew itself and end itself.
path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/renew-self" { capabilities = ["update"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
# It may ask what it may do.
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/internal/ui/resultant-acl" { capabilities = ["read"] }
# It may read its own entity.
path "identity/entity/id/{{identity.entity.id}}" { capabilities = ["read"] }
path "identity/entity/name/{{identity.entity.name}}" { capabilities = ["read"] }
# It may look at and renew leases whose ids it knows.
path "sys/renew" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
path "sys/leases/lookup" { capabilities = ["update"] }
# It has a cubbyhole of its own.
path "cubbyhole/*" { capabilities = ["create", "read", "update", "delete", "list"] }
# It may wrap and unwrap.
path "sys/wrapping/wrap" { capabilities = ["update"] }
path "sys/wrapping/lookup" { capabilities = ["update"] }
path "sys/wrapping/unwrap" { capabilities = ["update"] }
# It may hash.
path "sys/tools/hash" { capabilities = ["update"] }
path "sys/tools/hash/*" { capabilities = ["update"] }
path "identity/oidc/provider/+/authorize" { capabilities = ["read", "update"] }
`

// A wrapped answer lies in the cubbyhole of a token that may be used once, under
// this policy, and lives as long as was asked for.
const (
	WrappingPolicy     = "response-wrapping"
	wrappingPolicyText = `
path "cubbyhole/response" { capabilities = ["read"] }
path "sys/wrapping/unwrap" { capabilities = ["update"] }
`
)

// wrappingRules are what the token of a wrapped answer may do.
var wrappingRules = func() *policy.Policy {
	p, err := policy.Parse(WrappingPolicy, wrappingPolicyText)
	if err != nil {
		panic(err)
	}
	return p
}()

// defaultRules are those of a namespace that has not written its own.
var defaultRules = func() *policy.Policy {
	p, err := policy.Parse("default", DefaultPolicy)
	if err != nil {
		panic(err)
	}
	return p
}()

// ACLs holds compiled sets of policies by their names. It is made anew when
// a policy changes, so an entry is never out of date.
type ACLs struct {
	mu   sync.RWMutex
	ACLs map[string]*policy.ACL
}

func NewACLs() *ACLs { return &ACLs{ACLs: map[string]*policy.ACL{}} }

// aclCacheCount bounds the sets; past it the cache begins anew.
const aclCacheCount = 4096

// Shared is the compiled set of policies without what depends on who asks, and the policies.
func (st *Tables) Shared(names []string) (acl *policy.ACL, list func() []*policy.Policy) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	list = func() []*policy.Policy { return st.named(names) }
	key := strings.Join(names, "\x00")
	st.ACLs.mu.RLock()
	acl = st.ACLs.ACLs[key]
	st.ACLs.mu.RUnlock()
	if acl != nil {
		return acl, list
	}
	acl = policy.Compile(list(), nil)
	st.ACLs.mu.Lock()
	defer st.ACLs.mu.Unlock()
	if len(st.ACLs.ACLs) >= aclCacheCount {
		clear(st.ACLs.ACLs)
	}
	st.ACLs.ACLs[key] = acl
	return acl, list
}

// named finds policies. The root policy is one of the root namespace alone.
func (st *Tables) named(names []string) (list []*policy.Policy) {
	for _, name := range names {
		if name == WrappingPolicy { // not to be changed
			list = append(list, wrappingRules)
		} else if p := st.Policies[name]; p != nil {
			list = append(list, p)
		} else if st.Space != nil {
			if name == "default" {
				list = append(list, defaultRules)
			}
		} else if name == policy.RootName {
			list = append(list, &policy.Policy{Name: policy.RootName})
		}
	}
	return list
}
