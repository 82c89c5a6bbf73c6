package aclrows

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// aclState is the State to answer a read of ACL objects from.
func (al *Rows) aclState(q *rows.Request, kind catalog.RecordKind) (*statestore.State, error) {
	if al.Keeper == nil {
		return nil, errACLDisabled
	}
	if err := q.Allow(acl.ACL, "", acl.Read); err != nil {
		return nil, err
	}
	return q.ReadRecords(kind)
}

// showToken prepares a token for this caller: only who may change ACLs is shown secrets.
func showToken(q *rows.Request, st *statestore.State, t *acl.Token) {
	grants.ShowToken(st, t)
	if !q.Grant.Allow(acl.ACL, "", acl.Write) {
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

func (al *Rows) replyToken(q *rows.Request, st *statestore.State, t *acl.Token) error {
	if q.Query == "" || !q.Query.Has("expanded") {
		return q.ReplyValue(t)
	}
	out := expandedToken{Token: t, ExpandedPolicies: []*acl.Policy{}, ExpandedRoles: []*acl.Role{},
		AgentACLDefaultPolicy: q.DefaultACLPolicy, AgentACLDownPolicy: al.DownACLPolicy, ResolvedByAgent: q.Identity.NodeName}
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
	return q.ReplyValue(out)
}

func (al *Rows) aclTokenRead(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLToken)
	if err != nil {
		return err
	}
	t := grants.TokenByAccessor(st, q.Rest)
	if t == nil || t.Expired(q.Clock.Now()) {
		return errkind.New(errkind.Denied, "ACL not found")
	}
	showToken(q, st, t)
	return al.replyToken(q, st, t)
}

func (al *Rows) aclTokenSelf(q *rows.Request) error {
	if al.Keeper == nil {
		return errACLDisabled
	}
	st, err := q.ReadRecords(catalog.RecordACLToken)
	if err != nil {
		return err
	}
	t := grants.TokenByAccessor(st, q.Grant.Accessor)
	if t == nil { // the recovery token, or one that is being revoked
		return errkind.New(errkind.Denied, "ACL not found")
	}
	grants.ShowToken(st, t)
	return al.replyToken(q, st, t)
}

// tokenIDs name a token.
type tokenIDs struct{ AccessorID, SecretID string }

// tokenStub is a token in a list.
type tokenStub struct {
	CreateIndex, ModifyIndex uint64
	tokenIDs
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

// tokenSchema is what a filter may ask of a token.
var tokenSchema = filter.NewSchema(map[string]func(*acl.Token) string{
	"AccessorID":  func(t *acl.Token) string { return t.AccessorID },
	"Description": func(t *acl.Token) string { return t.Description },
	"AuthMethod":  func(t *acl.Token) string { return t.AuthMethod },
	"Local":       func(t *acl.Token) string { return strconv.FormatBool(t.Local) },
}, nil, nil)

func (al *Rows) aclTokens(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLToken)
	if err != nil {
		return err
	}
	f, err := q.Filter(tokenSchema)
	if err != nil {
		return err
	}
	policy, role := q.Query.Value("policy"), q.Query.Value("role")
	method, service := q.Query.Value("authmethod"), q.Query.Value("servicename")
	out := []tokenStub{}
	now := q.Clock.Now()
	linked := func(links []acl.Link, id string) bool {
		return id == "" || slices.ContainsFunc(links, func(l acl.Link) bool { return l.ID == id })
	}
	for _, t := range grants.Tokens(st) {
		if t.Expired(now) || f != nil && !f.Match(t) || !linked(t.Policies, policy) || !linked(t.Roles, role) ||
			method != "" && t.AuthMethod != method ||
			service != "" && !slices.ContainsFunc(t.ServiceIdentities,
				func(s acl.ServiceIdentity) bool { return s.ServiceName == service }) {
			continue
		}
		showToken(q, st, t)
		out = append(out, tokenStub{t.CreateIndex, t.ModifyIndex, tokenIDs{t.AccessorID, t.SecretID}, t.Description,
			t.Policies, t.Roles,
			t.ServiceIdentities, t.NodeIdentities, t.TemplatedPolicies, t.Local, t.AuthMethod, t.ExpirationTime, t.CreateTime,
			t.Hash, false})
	}
	return q.ReplyValue(out)
}

// one is a row that answers with the object that find finds; show prepares it for clients.
func one[T any](al *Rows, kind catalog.RecordKind, what string, find func(*statestore.State, string) *T,
	show func(*statestore.State, *T)) func(*rows.Request) error {
	return func(q *rows.Request) error {
		st, err := al.aclState(q, kind)
		if err != nil {
			return err
		}
		found := find(st, q.Rest)
		if found == nil {
			return errkind.New(errkind.NotFound, "Requested "+what+" does not exist: ACL not found")
		}
		if show != nil {
			show(st, found)
		}
		return q.ReplyValue(found)
	}
}

// policyStub is a policy in a list, without its rules.
type policyStub struct {
	ID, Name, Description string
	Datacenters           []string
	Hash                  []byte
	CreateIndex           uint64
	ModifyIndex           uint64
}

func (al *Rows) aclPolicies(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLPolicy)
	if err != nil {
		return err
	}
	out := []policyStub{}
	for _, p := range grants.Policies(st) {
		out = append(out, policyStub{p.ID, p.Name, p.Description, p.Datacenters, p.Hash, p.CreateIndex, p.ModifyIndex})
	}
	return q.ReplyValue(out)
}

func showRole(st *statestore.State, r *acl.Role) { grants.ShowLinks(st, &r.Grants) }

func (al *Rows) aclRoles(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLRole)
	if err != nil {
		return err
	}
	policy := q.Query.Value("policy")
	out := []*acl.Role{}
	for _, r := range grants.Roles(st) {
		if policy == "" || slices.ContainsFunc(r.Policies, func(l acl.Link) bool { return l.ID == policy }) {
			showRole(st, r)
			out = append(out, r)
		}
	}
	return q.ReplyValue(out)
}

// methodStub is an auth method in a list, without its configuration.
type methodStub struct {
	Name          string
	Type          string
	DisplayName   string `json:",omitempty"`
	Description   string
	MaxTokenTTL   acl.Duration `json:",omitzero"`
	TokenLocality string       `json:",omitempty"`
	Default       bool         `json:",omitempty"`
	CreateIndex   uint64
	ModifyIndex   uint64
}

func (al *Rows) aclMethods(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLAuthMethod)
	if err != nil {
		return err
	}
	out := []methodStub{}
	for _, m := range grants.AuthMethods(st) {
		out = append(out, methodStub{m.Name, m.Type, m.DisplayName, m.Description, m.MaxTokenTTL, m.TokenLocality,
			m.IsDefault(), m.CreateIndex, m.ModifyIndex})
	}
	return q.ReplyValue(out)
}

func (al *Rows) aclRules(q *rows.Request) error {
	st, err := al.aclState(q, catalog.RecordACLBindingRule)
	if err != nil {
		return err
	}
	method := q.Query.Value("authmethod")
	out := []*acl.BindingRule{}
	for _, b := range grants.BindingRules(st) {
		if method == "" || b.AuthMethod == method {
			out = append(out, b)
		}
	}
	return q.ReplyValue(out)
}

// aclReplication tells that this datacenter keeps its own ACLs.
func (al *Rows) aclReplication(q *rows.Request) error {
	if al.Keeper == nil {
		return errACLDisabled
	}
	return q.ReplyValue(struct {
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
func (al *Rows) aclReader(q *rows.Request) error {
	if al.Keeper == nil {
		return errACLDisabled
	}
	return q.Allow(acl.ACL, "", acl.Read)
}

func (al *Rows) aclTemplates(q *rows.Request) error {
	if err := al.aclReader(q); err != nil {
		return err
	}
	out := map[string]wireTemplate{}
	for _, t := range acl.Templates {
		out[t.Name] = showTemplate(t)
	}
	return q.ReplyValue(out)
}

func (al *Rows) aclTemplate(q *rows.Request) error {
	if err := al.aclReader(q); err != nil {
		return err
	}
	t, ok := acl.TemplateNamed(q.Rest)
	if !ok {
		return answer.Invalidf("Invalid templated policy Name: %s", q.Rest)
	}
	return q.ReplyValue(showTemplate(t))
}

func (al *Rows) aclTemplatePreview(q *rows.Request) error {
	if err := al.aclReader(q); err != nil {
		return err
	}
	var in acl.TemplateVariables
	if err := optionalBody(q, &in); err != nil {
		return err
	}
	rules, err := acl.Expand(q.Rest, in.Name)
	if err != nil {
		return err
	}
	p := acl.Policy{Name: "synthetic-policy-" + q.Rest, Description: "synthetic policy generated from templated policy: " +
		q.Rest, Rules: rules}
	p.Hash = acl.Sum(&p)
	return q.ReplyValue(p)
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
func (al *Rows) aclAuthorize(q *rows.Request) error {
	if al.Keeper == nil {
		return errACLDisabled
	}
	var in []wireAuthorize
	if err := q.Decode(&in); err != nil {
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
		in[i].Allow = q.Grant.Allow(r, in[i].Segment, l)
	}
	return q.ReplyValue(in)
}
