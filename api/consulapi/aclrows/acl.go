package aclrows

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

var errACLDisabled = answer.Fail(http.StatusUnauthorized, "ACL support disabled")

// keeper returns what changes ACL objects, on the leader: what others know may be old.
func (al *Rows) keeper(q *rows.Request) (*grants.Keeper, error) {
	if al.Keeper == nil {
		return nil, errACLDisabled
	}
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return nil, err // of kind NotLeader: fail forwards
	}
	return al.Keeper, nil
}

// aclWrite is keeper for rows that need the right to change ACLs.
func (al *Rows) aclWrite(q *rows.Request) (*grants.Keeper, error) {
	if al.Keeper == nil {
		return nil, errACLDisabled
	}
	if err := q.Allow(acl.ACL, "", acl.Write); err != nil {
		return nil, err
	}
	return al.keeper(q)
}

// decodeStrict is decode that refuses fields which nobody reads.
func decodeStrict(q *rows.Request, v any) error {
	b, err := q.Body(q.Limits.BodyBytes)
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

// request is what the token asks of the keeper.
func (in *wireToken) request() grants.TokenRequest {
	return grants.TokenRequest{Token: in.Token, TTL: time.Duration(in.ExpirationTTL)}
}

// optionalBody decodes a body that may be missing.
func optionalBody(q *rows.Request, v any) error {
	if q.R.ContentLength == 0 {
		return nil
	}
	return decodeStrict(q, v)
}

func (al *Rows) aclBootstrap(q *rows.Request) error {
	k, err := al.keeper(q)
	if err != nil {
		return err
	}
	var in struct{ BootstrapSecret string }
	if err := optionalBody(q, &in); err != nil {
		return err
	}
	t, err := k.Bootstrap(q.R.Context(), in.BootstrapSecret)
	return replyMade(q, t, err)
}

// login reads the body of a step of a login, and returns who does it.
func (al *Rows) login(q *rows.Request, in interface{ check() error }) (*grants.Keeper, error) {
	k, err := al.keeper(q)
	if err == nil {
		err = decodeStrict(q, in)
	}
	if err == nil {
		err = in.check()
	}
	return k, err
}

func (al *Rows) aclLogin(q *rows.Request) error {
	var in struct {
		AuthMethod  string
		BearerToken string
		Meta        map[string]string
		enterprise
	}
	k, err := al.login(q, &in)
	if err != nil {
		return err
	}
	t, err := k.Login(q.R.Context(), in.AuthMethod, in.BearerToken, in.Meta)
	return replyMade(q, t, err)
}

func (al *Rows) aclLogout(q *rows.Request) error {
	k, err := al.keeper(q)
	if err != nil {
		return err
	}
	secret := rows.OwnToken(q.R, q.Query)
	if secret == "" {
		return errkind.New(errkind.Denied, "ACL not found")
	}
	return q.Done(k.Logout(q.R.Context(), secret))
}

// aclOneTime makes a secret that is traded for the caller's token once: for those who hand a login on, as to a browser.
func (al *Rows) aclOneTime(q *rows.Request) error {
	k, err := al.keeper(q)
	if err != nil {
		return err
	}
	own := rows.OwnToken(q.R, q.Query)
	if own == "" {
		return errkind.New(errkind.Denied, "ACL not found")
	}
	secret, made, err := k.OneTime(q.R.Context(), own)
	if err != nil {
		return err
	}
	return q.ReplyValue(struct {
		OneTimeSecretID string
		acl.OneTime
	}{secret, made})
}

// aclExchange trades such a secret for the token.
func (al *Rows) aclExchange(q *rows.Request) error {
	k, err := al.keeper(q)
	if err != nil {
		return err
	}
	var in struct{ OneTimeSecretID string }
	if err := decodeStrict(q, &in); err != nil {
		return err
	}
	t, err := k.Exchange(q.R.Context(), in.OneTimeSecretID)
	return replyMade(q, t, err)
}

// replyMade answers with what the keeper made.
func replyMade[T any](q *rows.Request, made *T, err error) error {
	if err != nil {
		return err
	}
	return q.ReplyValue(made)
}

// set is a row that writes an object: it decodes the body and answers with what the keeper makes of it.
func set[W any, T any, P interface {
	*W
	check() error
}](al *Rows, do func(q *rows.Request, k *grants.Keeper, in P) (*T, error)) func(*rows.Request) error {
	return func(q *rows.Request) error {
		k, err := al.aclWrite(q)
		if err != nil {
			return err
		}
		in := P(new(W))
		if err := decodeStrict(q, in); err != nil {
			return err
		}
		if err := in.check(); err != nil {
			return err
		}
		made, err := do(q, k, in)
		return replyMade(q, made, err)
	}
}

// drop is a row that deletes an object; missing refuses a path that names none.
func (al *Rows) drop(missing string, do func(*grants.Keeper, context.Context, string) error) func(*rows.Request) error {
	return func(q *rows.Request) error {
		k, err := al.aclWrite(q)
		if err != nil {
			return err
		}
		if missing != "" && q.Rest == "" {
			return answer.Invalidf("%s", missing)
		}
		return q.Done(do(k, q.R.Context(), q.Rest))
	}
}

func createToken(q *rows.Request, k *grants.Keeper, in *wireToken) (*acl.Token, error) {
	return k.CreateToken(q.R.Context(), in.request())
}

const missingAccessor = "Missing token AccessorID"

// aclTokenUpdate also clones: PUT .../:accessor/clone.
func (al *Rows) aclTokenUpdate(q *rows.Request) error {
	k, err := al.aclWrite(q)
	accessor, clones := strings.CutSuffix(q.Rest, "/clone")
	switch {
	case err != nil:
		return err
	case clones:
		return cloneToken(q, k, accessor)
	case q.Rest == "":
		return answer.Invalidf(missingAccessor)
	}
	return set(al, updateToken)(q)
}

func updateToken(q *rows.Request, k *grants.Keeper, in *wireToken) (*acl.Token, error) {
	if in.AccessorID != "" && in.AccessorID != q.Rest {
		return nil, answer.Invalidf("Token Accessor ID in URL and payload do not match")
	}
	in.AccessorID = q.Rest
	return k.UpdateToken(q.R.Context(), in.request())
}

func cloneToken(q *rows.Request, k *grants.Keeper, accessor string) error {
	var in wireToken
	if err := optionalBody(q, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	t, err := k.CloneToken(q.R.Context(), accessor, in.Description)
	return replyMade(q, t, err)
}

// idOf settles the ID of an object that is written: none at its creation, else the path's.
func idOf(q *rows.Request, title, what, id string) (string, error) {
	switch create := !strings.HasSuffix(q.Row.Pattern, "/"); {
	case create && id != "":
		return "", answer.Invalidf("Cannot specify the ID when creating a new %s", what)
	case create:
		return "", nil
	case q.Rest == "":
		return "", answer.Invalidf("Missing %s ID", what)
	case id != "" && id != q.Rest:
		return "", answer.Invalidf("%s ID in URL and payload do not match", title)
	}
	return q.Rest, nil
}

type wirePolicy struct {
	acl.Policy
	enterprise
}

func setPolicy(q *rows.Request, k *grants.Keeper, in *wirePolicy) (_ *acl.Policy, err error) {
	if in.ID, err = idOf(q, "Policy", "policy", in.ID); err != nil {
		return nil, err
	}
	return k.SetPolicy(q.R.Context(), in.Policy)
}

type wireRole struct {
	acl.Role
	enterprise
}

func setRole(q *rows.Request, k *grants.Keeper, in *wireRole) (_ *acl.Role, err error) {
	if in.ID, err = idOf(q, "Role", "role", in.ID); err != nil {
		return nil, err
	}
	return k.SetRole(q.R.Context(), in.Role)
}

type wireMethod struct {
	acl.AuthMethod
	NamespaceRules json.RawMessage
	enterprise
}

func createMethod(q *rows.Request, k *grants.Keeper, in *wireMethod) (*acl.AuthMethod, error) {
	return k.SetAuthMethod(q.R.Context(), in.AuthMethod, true)
}

func updateMethod(q *rows.Request, k *grants.Keeper, in *wireMethod) (*acl.AuthMethod, error) {
	if in.Name != "" && in.Name != q.Rest {
		return nil, answer.Invalidf("Auth method name in URL and payload do not match")
	}
	in.Name = q.Rest
	return k.SetAuthMethod(q.R.Context(), in.AuthMethod, false)
}

type wireRule struct {
	acl.BindingRule
	enterprise
}

func setRule(q *rows.Request, k *grants.Keeper, in *wireRule) (_ *acl.BindingRule, err error) {
	if in.ID, err = idOf(q, "Binding rule", "binding rule", in.ID); err != nil {
		return nil, err
	}
	return k.SetBindingRule(q.R.Context(), in.BindingRule)
}
