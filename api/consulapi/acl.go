package consulapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

const (
	bootstrapPattern = "/v1/acl/bootstrap"
	loginPattern     = "/v1/acl/login"
)

// tokenless are the patterns that do not look at the token: whoever calls them has none yet, or
// only wants to know whether there is a cluster.
var tokenless = map[string]bool{readyPattern: true, bootstrapPattern: true, loginPattern: true,
	"/v1/status/leader": true, "/v1/status/peers": true, "/v1/catalog/datacenters": true}

func (r *route) tokenless() bool { return r.resource == acl.NoResource && tokenless[r.pattern] }

var aclRoutes = []route{
	{"PUT", bootstrapPattern, write, acl.NoResource, aclBootstrap},
	{"POST", loginPattern, write, acl.NoResource, aclLogin},
	{"POST", "/v1/acl/logout", write, acl.NoResource, aclLogout},
	{"GET", "/v1/acl/replication", read, acl.NoResource, aclReplication},
	{"PUT", "/v1/acl/token", write, acl.ACL, aclTokenCreate},
	{"GET", "/v1/acl/token/self", read, acl.NoResource, aclTokenSelf},
	{"GET", "/v1/acl/token/", read, acl.ACL, aclTokenRead},
	{"PUT", "/v1/acl/token/", write, acl.ACL, aclTokenUpdate},
	{"DELETE", "/v1/acl/token/", write, acl.ACL, aclTokenDelete},
	{"GET", "/v1/acl/tokens", read, acl.ACL, aclTokens},
	{"PUT", "/v1/acl/policy", write, acl.ACL, aclPolicyCreate},
	{"GET", "/v1/acl/policy/", read, acl.ACL, aclPolicyRead},
	{"GET", "/v1/acl/policy/name/", read, acl.ACL, aclPolicyByName},
	{"PUT", "/v1/acl/policy/", write, acl.ACL, aclPolicyUpdate},
	{"DELETE", "/v1/acl/policy/", write, acl.ACL, aclPolicyDelete},
	{"GET", "/v1/acl/policies", read, acl.ACL, aclPolicies},
	{"PUT", "/v1/acl/role", write, acl.ACL, aclRoleCreate},
	{"GET", "/v1/acl/role/", read, acl.ACL, aclRoleRead},
	{"GET", "/v1/acl/role/name/", read, acl.ACL, aclRoleByName},
	{"PUT", "/v1/acl/role/", write, acl.ACL, aclRoleUpdate},
	{"DELETE", "/v1/acl/role/", write, acl.ACL, aclRoleDelete},
	{"GET", "/v1/acl/roles", read, acl.ACL, aclRoles},
	{"PUT", "/v1/acl/auth-method", write, acl.ACL, aclMethodCreate},
	{"GET", "/v1/acl/auth-method/", read, acl.ACL, aclMethodRead},
	{"PUT", "/v1/acl/auth-method/", write, acl.ACL, aclMethodUpdate},
	{"DELETE", "/v1/acl/auth-method/", write, acl.ACL, aclMethodDelete},
	{"GET", "/v1/acl/auth-methods", read, acl.ACL, aclMethods},
	{"PUT", "/v1/acl/binding-rule", write, acl.ACL, aclRuleCreate},
	{"GET", "/v1/acl/binding-rule/", read, acl.ACL, aclRuleRead},
	{"PUT", "/v1/acl/binding-rule/", write, acl.ACL, aclRuleUpdate},
	{"DELETE", "/v1/acl/binding-rule/", write, acl.ACL, aclRuleDelete},
	{"GET", "/v1/acl/binding-rules", read, acl.ACL, aclRules},
	{"GET", "/v1/acl/templated-policies", read, acl.ACL, aclTemplates},
	{"GET", "/v1/acl/templated-policy/name/", read, acl.ACL, aclTemplate},
	{"POST", "/v1/acl/templated-policy/preview/", read, acl.ACL, aclTemplatePreview},
	{"POST", "/v1/internal/acl/authorize", read, acl.NoResource, aclAuthorize},
}

var errACLDisabled = answer.Fail(http.StatusUnauthorized, "ACL support disabled")

// keeper returns what changes ACL objects, on the leader: what others know may be old.
func (q *request) keeper() (*grants.Keeper, error) {
	if q.api.cfg.Keeper == nil {
		return nil, errACLDisabled
	}
	if _, err := q.api.cfg.Registry.Read(q.r.Context(), registry.Default); err != nil {
		return nil, err // of kind NotLeader: fail forwards
	}
	return q.api.cfg.Keeper, nil
}

// aclWrite is keeper for rows that need the right to change ACLs.
func (q *request) aclWrite() (*grants.Keeper, error) {
	if q.api.cfg.Keeper == nil {
		return nil, errACLDisabled
	}
	if err := q.allow(acl.ACL, "", acl.Write); err != nil {
		return nil, err
	}
	return q.keeper()
}

// decodeStrict is decode that refuses fields which nobody reads.
func (q *request) decodeStrict(v any) error {
	b, err := q.body(q.api.cfg.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if err := bodies.Sound(b); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return answer.Invalidf("Request decode failed: %v", err)
	}
	if dec.More() {
		return answer.Invalidf("Request decode failed: something follows the object")
	}
	return nil
}

// enterprise are fields that clients send and that may only name the default.
type enterprise struct {
	Namespace           string `json:",omitempty"`
	Partition           string `json:",omitempty"`
	AuthMethodNamespace string `json:",omitempty"`
}

func (e *enterprise) check() error {
	for _, v := range []string{e.Namespace, e.Partition, e.AuthMethodNamespace} {
		if v != "" && v != "default" {
			return answer.Invalidf("Invalid request: Namespaces and Partitions are a Consul Enterprise feature")
		}
	}
	return nil
}

type wireToken struct {
	acl.Token
	ExpirationTTL bodies.Span
	enterprise
	// What only answers hold, and clients send back.
	ExpandedPolicies, ExpandedRoles                            json.RawMessage
	AgentACLDefaultPolicy, AgentACLDownPolicy, ResolvedByAgent json.RawMessage
	NamespaceDefaultPolicyIDs, NamespaceDefaultRoleIDs         json.RawMessage
}

func (q *request) tokenBody() (in wireToken, req grants.TokenRequest, err error) {
	if err = q.decodeStrict(&in); err == nil {
		err = in.check()
	}
	return in, grants.TokenRequest{Token: in.Token, TTL: time.Duration(in.ExpirationTTL)}, err
}

// optionalBody decodes a body that may be missing.
func (q *request) optionalBody(v any) error {
	if q.r.ContentLength == 0 {
		return nil
	}
	return q.decodeStrict(v)
}

func aclBootstrap(q *request) error {
	k, err := q.keeper()
	if err != nil {
		return err
	}
	var in struct{ BootstrapSecret string }
	if err := q.optionalBody(&in); err != nil {
		return err
	}
	t, err := k.Bootstrap(q.r.Context(), in.BootstrapSecret)
	if err != nil {
		return err
	}
	return q.replyValue(t)
}

func aclLogin(q *request) error {
	k, err := q.keeper()
	if err != nil {
		return err
	}
	var in struct {
		AuthMethod  string
		BearerToken string
		Meta        map[string]string
		enterprise
	}
	if err := q.decodeStrict(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	t, err := k.Login(q.r.Context(), in.AuthMethod, in.BearerToken, in.Meta)
	if err != nil {
		return err
	}
	return q.replyValue(t)
}

func aclLogout(q *request) error {
	k, err := q.keeper()
	if err != nil {
		return err
	}
	secret := ownToken(q.r, q.q)
	if secret == "" {
		return errkind.New(errkind.Denied, "ACL not found")
	}
	return q.done(k.Logout(q.r.Context(), secret))
}

// done answers a change that gives nothing back.
func (q *request) done(err error) error {
	if err != nil {
		return err
	}
	return q.replyBool(true)
}

func aclTokenCreate(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	_, in, err := q.tokenBody()
	if err != nil {
		return err
	}
	t, err := k.CreateToken(q.r.Context(), in)
	if err != nil {
		return err
	}
	return q.replyValue(t)
}

// aclTokenUpdate also clones: PUT .../:accessor/clone.
func aclTokenUpdate(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	if accessor, ok := strings.CutSuffix(q.rest, "/clone"); ok {
		return aclTokenClone(q, k, accessor)
	}
	if q.rest == "" {
		return answer.Invalidf("Missing token AccessorID")
	}
	_, in, err := q.tokenBody()
	if err != nil {
		return err
	}
	if in.AccessorID != "" && in.AccessorID != q.rest {
		return answer.Invalidf("Token Accessor ID in URL and payload do not match")
	}
	in.AccessorID = q.rest
	t, err := k.UpdateToken(q.r.Context(), in)
	if err != nil {
		return err
	}
	return q.replyValue(t)
}

func aclTokenClone(q *request, k *grants.Keeper, accessor string) error {
	var in wireToken
	if err := q.optionalBody(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	t, err := k.CloneToken(q.r.Context(), accessor, in.Description)
	if err != nil {
		return err
	}
	return q.replyValue(t)
}

func aclTokenDelete(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	if q.rest == "" {
		return answer.Invalidf("Missing token AccessorID")
	}
	return q.done(k.DeleteToken(q.r.Context(), q.rest))
}

type wirePolicy struct {
	acl.Policy
	enterprise
}

func aclPolicyCreate(q *request) error { return q.setPolicy(true) }

func aclPolicyUpdate(q *request) error { return q.setPolicy(false) }

func (q *request) setPolicy(create bool) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	var in wirePolicy
	if err := q.decodeStrict(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.ID, err = q.idOf("Policy", "policy", in.ID, create); err != nil {
		return err
	}
	p, err := k.SetPolicy(q.r.Context(), in.Policy)
	if err != nil {
		return err
	}
	return q.replyValue(p)
}

// idOf settles the ID of an object that is written: none at its creation, else the path's.
func (q *request) idOf(title, what, id string, create bool) (string, error) {
	switch {
	case create && id != "":
		return "", answer.Invalidf("Cannot specify the ID when creating a new %s", what)
	case create:
		return "", nil
	case q.rest == "":
		return "", answer.Invalidf("Missing %s ID", what)
	case id != "" && id != q.rest:
		return "", answer.Invalidf("%s ID in URL and payload do not match", title)
	}
	return q.rest, nil
}

func aclPolicyDelete(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	return q.done(k.DeletePolicy(q.r.Context(), q.rest))
}

type wireRole struct {
	acl.Role
	enterprise
}

func aclRoleCreate(q *request) error { return q.setRole(true) }

func aclRoleUpdate(q *request) error { return q.setRole(false) }

func (q *request) setRole(create bool) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	var in wireRole
	if err := q.decodeStrict(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.ID, err = q.idOf("Role", "role", in.ID, create); err != nil {
		return err
	}
	r, err := k.SetRole(q.r.Context(), in.Role)
	if err != nil {
		return err
	}
	return q.replyValue(r)
}

func aclRoleDelete(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	return q.done(k.DeleteRole(q.r.Context(), q.rest))
}

type wireMethod struct {
	acl.AuthMethod
	NamespaceRules json.RawMessage
	enterprise
}

func aclMethodCreate(q *request) error { return q.setMethod(true) }

func aclMethodUpdate(q *request) error { return q.setMethod(false) }

func (q *request) setMethod(create bool) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	var in wireMethod
	if err := q.decodeStrict(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if !create {
		if in.Name != "" && in.Name != q.rest {
			return answer.Invalidf("Auth method name in URL and payload do not match")
		}
		in.Name = q.rest
	}
	m, err := k.SetAuthMethod(q.r.Context(), in.AuthMethod, create)
	if err != nil {
		return err
	}
	return q.replyValue(m)
}

func aclMethodDelete(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	return q.done(k.DeleteAuthMethod(q.r.Context(), q.rest))
}

type wireRule struct {
	acl.BindingRule
	enterprise
}

func aclRuleCreate(q *request) error { return q.setRule(true) }

func aclRuleUpdate(q *request) error { return q.setRule(false) }

func (q *request) setRule(create bool) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	var in wireRule
	if err := q.decodeStrict(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.ID, err = q.idOf("Binding rule", "binding rule", in.ID, create); err != nil {
		return err
	}
	b, err := k.SetBindingRule(q.r.Context(), in.BindingRule)
	if err != nil {
		return err
	}
	return q.replyValue(b)
}

func aclRuleDelete(q *request) error {
	k, err := q.aclWrite()
	if err != nil {
		return err
	}
	return q.done(k.DeleteBindingRule(q.r.Context(), q.rest))
}
