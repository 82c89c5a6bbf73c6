package keeper

import (
	"slices"
	"strings"
	"sync"

	"corbel.dev/corbel/secrets/policy"
)

// defaultPolicy is what every token may do unless it was made without (contract 2.4).
const defaultPolicy = `# A token may look at itself, renew itself and end itself.
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

// wrappingRules are what the token of a wrapped answer may do.
var wrappingRules = func() *policy.Policy {
	p, err := policy.Parse(wrappingPolicy, wrappingPolicyText)
	if err != nil {
		panic(err)
	}
	return p
}()

// aclCache holds compiled sets of policies by their names. It is made anew when
// a policy changes, so an entry is never out of date.
type aclCache struct {
	mu   sync.RWMutex
	acls map[string]*policy.ACL
}

func newACLCache() *aclCache { return &aclCache{acls: map[string]*policy.ACL{}} }

// aclCacheCount bounds the sets; past it the cache begins anew.
const aclCacheCount = 4096

// shared is the compiled set of policies without what depends on who asks, and the policies.
func (st *state) shared(names []string) (acl *policy.ACL, list func() []*policy.Policy) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	list = func() []*policy.Policy { return st.named(names) }
	key := strings.Join(names, "\x00")
	st.acls.mu.RLock()
	acl = st.acls.acls[key]
	st.acls.mu.RUnlock()
	if acl != nil {
		return acl, list
	}
	acl = policy.Compile(list(), nil)
	st.acls.mu.Lock()
	defer st.acls.mu.Unlock()
	if len(st.acls.acls) >= aclCacheCount {
		clear(st.acls.acls)
	}
	st.acls.acls[key] = acl
	return acl, list
}

func (st *state) named(names []string) (list []*policy.Policy) {
	for _, name := range names {
		if name == wrappingPolicy { // not to be changed
			list = append(list, wrappingRules)
		} else if p := st.policies[name]; p != nil {
			list = append(list, p)
		} else if name == policy.RootName {
			list = append(list, &policy.Policy{Name: policy.RootName})
		}
	}
	return list
}
