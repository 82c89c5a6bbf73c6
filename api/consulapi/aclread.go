package consulapi

import (
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// aclState is the State to answer a read of ACL objects from.
func (q *request) aclState(kind catalog.RecordKind) (*catalog.State, error) {
	if q.api.cfg.Keeper == nil {
		return nil, errACLDisabled
	}
	if err := q.allow(acl.ACL, "", acl.Read); err != nil {
		return nil, err
	}
	return q.read(registry.RecordsSubject(kind), func(s *catalog.State) uint64 { return s.RecordsIndex(kind) })
}

// showToken prepares a token for this caller: only who may change ACLs is shown secrets.
func (q *request) showToken(st *catalog.State, t *acl.Token) {
	grants.ShowToken(st, t)
	if !q.grant.Allow(acl.ACL, "", acl.Write) {
		grants.Hide(t)
	}
}

// expandedToken is a token with everything that it gives.
type expandedToken struct {
	*acl.Token
	ExpandedPolicies      []*acl.Policy
	ExpandedRoles         []*acl.Role
	AgentACLDefaultPolicy string
	AgentACLDownPolicy    string
	ResolvedByAgent       string
}

func (q *request) replyToken(st *catalog.State, t *acl.Token) error {
	if q.q == "" || !q.q.Has("expanded") {
		return q.replyValue(t)
	}
	out := expandedToken{Token: t, ExpandedPolicies: []*acl.Policy{}, ExpandedRoles: []*acl.Role{},
		AgentACLDefaultPolicy: q.api.cfg.DefaultACLPolicy, AgentACLDownPolicy: q.api.cfg.DownACLPolicy, ResolvedByAgent: q.api.cfg.Identity.NodeName}
	policies, roles := grants.Expand(st, t)
	for _, p := range policies {
		shown := *p.Policy
		if strings.HasPrefix(shown.ID, grants.SyntheticID) {
			shown.ID = ""
		}
		out.ExpandedPolicies = append(out.ExpandedPolicies, &shown)
	}
	for _, r := range roles {
		grants.ShowLinks(st, &r.Grants)
		out.ExpandedRoles = append(out.ExpandedRoles, r)
	}
	return q.replyValue(out)
}

func aclTokenRead(q *request) error {
	st, err := q.aclState(catalog.RecordACLToken)
	if err != nil {
		return err
	}
	t := grants.TokenByAccessor(st, q.rest)
	if t == nil || t.Expired(q.api.cfg.Clock.Now()) {
		return errkind.New(errkind.Denied, "ACL not found")
	}
	q.showToken(st, t)
	return q.replyToken(st, t)
}

func aclTokenSelf(q *request) error {
	if q.api.cfg.Keeper == nil {
		return errACLDisabled
	}
	st, err := q.read(registry.RecordsSubject(catalog.RecordACLToken), func(s *catalog.State) uint64 { return s.RecordsIndex(catalog.RecordACLToken) })
	if err != nil {
		return err
	}
	t := grants.TokenByAccessor(st, q.grant.Accessor)
	if t == nil { // the recovery token, or one that is being revoked
		return errkind.New(errkind.Denied, "ACL not found")
	}
	grants.ShowToken(st, t)
	return q.replyToken(st, t)
}

// tokenStub is a token in a list.
type tokenStub struct {
	CreateIndex       uint64
	ModifyIndex       uint64
	AccessorID        string
	SecretID          string
	Description       string
	Policies          []acl.Link            `json:",omitempty"`
	Roles             []acl.Link            `json:",omitempty"`
	ServiceIdentities []acl.ServiceIdentity `json:",omitempty"`
	NodeIdentities    []acl.NodeIdentity    `json:",omitempty"`
	TemplatedPolicies []acl.TemplatedPolicy `json:",omitempty"`
	Local             bool
	AuthMethod        string     `json:",omitempty"`
	ExpirationTime    *time.Time `json:",omitempty"`
	CreateTime        time.Time
	Hash              []byte
	Legacy            bool
}

func aclTokens(q *request) error {
	st, err := q.aclState(catalog.RecordACLToken)
	if err != nil {
		return err
	}
	policy, role := q.q.Value("policy"), q.q.Value("role")
	method, service := q.q.Value("authmethod"), q.q.Value("servicename")
	out := []tokenStub{}
	now := q.api.cfg.Clock.Now()
	linked := func(links []acl.Link, id string) bool {
		return id == "" || slices.ContainsFunc(links, func(l acl.Link) bool { return l.ID == id })
	}
	for _, t := range grants.Tokens(st) {
		if t.Expired(now) || !linked(t.Policies, policy) || !linked(t.Roles, role) || method != "" && t.AuthMethod != method ||
			service != "" && !slices.ContainsFunc(t.ServiceIdentities, func(s acl.ServiceIdentity) bool { return s.ServiceName == service }) {
			continue
		}
		q.showToken(st, t)
		out = append(out, tokenStub{t.CreateIndex, t.ModifyIndex, t.AccessorID, t.SecretID, t.Description, t.Policies, t.Roles,
			t.ServiceIdentities, t.NodeIdentities, t.TemplatedPolicies, t.Local, t.AuthMethod, t.ExpirationTime, t.CreateTime, t.Hash, false})
	}
	return q.replyValue(out)
}

func notThere(what string) error {
	return errkind.New(errkind.NotFound, "Requested "+what+" does not exist: ACL not found")
}

func aclPolicyRead(q *request) error {
	st, err := q.aclState(catalog.RecordACLPolicy)
	if err != nil {
		return err
	}
	if p := grants.PolicyByID(st, q.rest); p != nil {
		return q.replyValue(p)
	}
	return notThere("policy")
}

func aclPolicyByName(q *request) error {
	st, err := q.aclState(catalog.RecordACLPolicy)
	if err != nil {
		return err
	}
	if p := grants.PolicyByName(st, q.rest); p != nil {
		return q.replyValue(p)
	}
	return notThere("policy")
}

// policyStub is a policy in a list, without its rules.
type policyStub struct {
	ID, Name, Description string
	Datacenters           []string
	Hash                  []byte
	CreateIndex           uint64
	ModifyIndex           uint64
}

func aclPolicies(q *request) error {
	st, err := q.aclState(catalog.RecordACLPolicy)
	if err != nil {
		return err
	}
	out := []policyStub{}
	for _, p := range grants.Policies(st) {
		out = append(out, policyStub{p.ID, p.Name, p.Description, p.Datacenters, p.Hash, p.CreateIndex, p.ModifyIndex})
	}
	return q.replyValue(out)
}

func aclRoleRead(q *request) error {
	st, err := q.aclState(catalog.RecordACLRole)
	if err != nil {
		return err
	}
	return q.replyRole(st, grants.RoleByID(st, q.rest))
}

func aclRoleByName(q *request) error {
	st, err := q.aclState(catalog.RecordACLRole)
	if err != nil {
		return err
	}
	return q.replyRole(st, grants.RoleByName(st, q.rest))
}

func (q *request) replyRole(st *catalog.State, r *acl.Role) error {
	if r == nil {
		return notThere("role")
	}
	grants.ShowLinks(st, &r.Grants)
	return q.replyValue(r)
}

func aclRoles(q *request) error {
	st, err := q.aclState(catalog.RecordACLRole)
	if err != nil {
		return err
	}
	policy := q.q.Value("policy")
	out := []*acl.Role{}
	for _, r := range grants.Roles(st) {
		if policy == "" || slices.ContainsFunc(r.Policies, func(l acl.Link) bool { return l.ID == policy }) {
			grants.ShowLinks(st, &r.Grants)
			out = append(out, r)
		}
	}
	return q.replyValue(out)
}

func aclMethodRead(q *request) error {
	st, err := q.aclState(catalog.RecordACLAuthMethod)
	if err != nil {
		return err
	}
	if m := grants.AuthMethodByName(st, q.rest); m != nil {
		return q.replyValue(m)
	}
	return notThere("auth method")
}

// methodStub is an auth method in a list, without its configuration.
type methodStub struct {
	Name          string
	Type          string
	DisplayName   string `json:",omitempty"`
	Description   string
	MaxTokenTTL   acl.Duration `json:",omitzero"`
	TokenLocality string       `json:",omitempty"`
	CreateIndex   uint64
	ModifyIndex   uint64
}

func aclMethods(q *request) error {
	st, err := q.aclState(catalog.RecordACLAuthMethod)
	if err != nil {
		return err
	}
	out := []methodStub{}
	for _, m := range grants.AuthMethods(st) {
		out = append(out, methodStub{m.Name, m.Type, m.DisplayName, m.Description, m.MaxTokenTTL, m.TokenLocality, m.CreateIndex, m.ModifyIndex})
	}
	return q.replyValue(out)
}

func aclRuleRead(q *request) error {
	st, err := q.aclState(catalog.RecordACLBindingRule)
	if err != nil {
		return err
	}
	if b := grants.BindingRuleByID(st, q.rest); b != nil {
		return q.replyValue(b)
	}
	return notThere("binding rule")
}

func aclRules(q *request) error {
	st, err := q.aclState(catalog.RecordACLBindingRule)
	if err != nil {
		return err
	}
	method := q.q.Value("authmethod")
	out := []*acl.BindingRule{}
	for _, b := range grants.BindingRules(st) {
		if method == "" || b.AuthMethod == method {
			out = append(out, b)
		}
	}
	return q.replyValue(out)
}

// aclReplication tells that this datacenter keeps its own ACLs.
func aclReplication(q *request) error {
	if q.api.cfg.Keeper == nil {
		return errACLDisabled
	}
	return q.replyValue(struct {
		Enabled, Running                                           bool
		SourceDatacenter, ReplicationType                          string
		ReplicatedIndex, ReplicatedRoleIndex, ReplicatedTokenIndex uint64
		LastSuccess, LastError                                     time.Time
		LastErrorMessage                                           string
	}{})
}

type wireTemplate struct{ TemplateName, Schema, Template, Description string }

func showTemplate(t acl.Template) wireTemplate {
	return wireTemplate{t.Name, t.Schema, t.Rules, t.Description}
}

// aclReader asks for the right to read what is no record.
func (q *request) aclReader() error {
	if q.api.cfg.Keeper == nil {
		return errACLDisabled
	}
	return q.allow(acl.ACL, "", acl.Read)
}

func aclTemplates(q *request) error {
	if err := q.aclReader(); err != nil {
		return err
	}
	out := map[string]wireTemplate{}
	for _, t := range acl.Templates {
		out[t.Name] = showTemplate(t)
	}
	return q.replyValue(out)
}

func aclTemplate(q *request) error {
	if err := q.aclReader(); err != nil {
		return err
	}
	t, ok := acl.TemplateNamed(q.rest)
	if !ok {
		return answer.Invalidf("Invalid templated policy Name: %s", q.rest)
	}
	return q.replyValue(showTemplate(t))
}

func aclTemplatePreview(q *request) error {
	if err := q.aclReader(); err != nil {
		return err
	}
	var in acl.TemplateVariables
	if err := q.optionalBody(&in); err != nil {
		return err
	}
	rules, err := acl.Expand(q.rest, in.Name)
	if err != nil {
		return err
	}
	p := acl.Policy{Name: "synthetic-policy-" + q.rest, Description: "synthetic policy generated from templated policy: " + q.rest, Rules: rules}
	p.Hash = acl.Sum(&p)
	return q.replyValue(p)
}

// maxAuthorize is the contract's bound on the questions of one request.
const maxAuthorize = 64

// question of /internal/acl/authorize, and its answer.
type wireAuthorize struct {
	Resource, Access string
	Segment          string `json:",omitempty"`
	Allow            bool
}

// aclAuthorize tells the caller what its own token allows.
func aclAuthorize(q *request) error {
	if q.api.cfg.Keeper == nil {
		return errACLDisabled
	}
	var in []wireAuthorize
	if err := q.decode(&in); err != nil {
		return err
	}
	if len(in) > maxAuthorize {
		return answer.Invalidf("Refusing to process more than %d authorizations at once", maxAuthorize)
	}
	for i := range in {
		r, ok := acl.ParseResource(in[i].Resource)
		l, known := acl.ParseLevel(r, in[i].Access)
		if !ok || !known || l == acl.Deny {
			return answer.Invalidf("Invalid resource %q or access %q", in[i].Resource, in[i].Access)
		}
		in[i].Allow = q.grant.Allow(r, in[i].Segment, l)
	}
	return q.replyValue(in)
}
