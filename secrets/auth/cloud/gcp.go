package cloud

import (
	"context"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// gcp is Google's cloud: service accounts, by tokens that they sign themselves, and machines, by tokens of their
// metadata server.
type gcp struct{}

// project is the configuration of a mount. It works without one.
type project struct {
	// API is where Google's keys are asked for, in the place of https://www.googleapis.com, and CA what vouches for it.
	API      string `json:"api,omitempty"`
	CA       string `json:"ca,omitempty"`
	IAMAlias string `json:"iam_alias"`
	GCEAlias string `json:"gce_alias"`
}

const (
	google  = "https://www.googleapis.com"
	machine = "https://accounts.google.com" // the issuer of metadata servers
	ofIAM   = "iam"
	ofGCE   = "gce"
	// longestJWT bounds the life of a token that an account signs for itself.
	longestJWT = time.Hour
	shortJWT   = 15 * time.Minute
)

func (p *project) source(path string) jwks.Source {
	at := p.API
	if at == "" {
		at = google
	}
	return jwks.Source{URL: strings.TrimSuffix(at, "/") + path, CA: p.CA}
}

func projectOf(ctx context.Context, view engine.View) (*project, error) {
	p, err := auth.Find[project](ctx, view, "", configKey)
	if err == nil && p == nil {
		p = &project{IAMAlias: "unique_id", GCEAlias: "instance_id"}
	}
	return p, err
}

func (gcp) config(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	p, err := projectOf(ctx, view)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case secrets.Read:
		return auth.Data(map[string]any{"iam_alias": p.IAMAlias, "gce_alias": p.GCEAlias,
			"custom_endpoint": map[string]string{"api": p.API}, "custom_endpoint_ca_pem": p.CA})
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(configKey)}}, nil
	case secrets.Create, secrets.Update:
	default:
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	if ends := auth.Pairs(f, "custom_endpoint"); f.Has("custom_endpoint") {
		p.API = ends["api"]
	}
	for field, at := range map[string]*string{"iam_alias": &p.IAMAlias, "gce_alias": &p.GCEAlias,
		"custom_endpoint_ca_pem": &p.CA} {
		if f.Has(field) {
			*at = f.String(field)
		}
	}
	credentials := f.Has("credentials")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case p.IAMAlias != "unique_id" && p.IAMAlias != "role_id":
		return nil, invalid("field \"iam_alias\": must be unique_id or role_id")
	case p.GCEAlias != "instance_id" && p.GCEAlias != "role_id":
		return nil, invalid("field \"gce_alias\": must be instance_id or role_id")
	}
	if p.API != "" {
		if err := jwks.CheckURL("custom_endpoint", p.API); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
	}
	if err := jwks.CheckCA("custom_endpoint_ca_pem", p.CA); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	resp, err := auth.Keep(configKey, p)
	if err == nil && credentials {
		resp.Warnings = []string{"credentials are not kept: no API of Google is asked but for its public keys"}
	}
	return resp, err
}

// accounts is a role of gcp's.
type accounts struct {
	Type     string        `json:"type"`
	Accounts []string      `json:"bound_service_accounts,omitempty"`
	Projects []string      `json:"bound_projects,omitempty"`
	Zones    []string      `json:"bound_zones,omitempty"`
	Regions  []string      `json:"bound_regions,omitempty"`
	Longest  time.Duration `json:"max_jwt_exp"`
	Tokens   auth.Params   `json:"tokens"`
}

func (a *accounts) bounds() map[string]*[]string {
	return map[string]*[]string{"bound_service_accounts": &a.Accounts, "bound_projects": &a.Projects,
		"bound_zones": &a.Zones, "bound_regions": &a.Regions}
}

// Read implements auth.Record.
func (a *accounts) Read(f *secrets.Fields) error {
	kind := f.String("type")
	lists(f, a.bounds())
	a.Longest = f.Duration("max_jwt_exp", a.Longest)
	if err := a.Tokens.Read(f); err != nil {
		return err
	}
	if err := none(f, "a token does not say it, and no API of Google is asked", "bound_instance_groups",
		"bound_instance_group", "bound_labels"); err != nil {
		return err
	}
	if f.Bool("add_group_aliases", false) {
		return invalid("field \"add_group_aliases\": is not supported: it needs Google's resource manager")
	}
	if err := f.Err(); err != nil {
		return err
	}
	switch {
	case a.Type != "" && kind != "" && kind != a.Type:
		return invalid("field \"type\": is %s: delete the role first", a.Type)
	case a.Type == "" && kind != ofIAM && kind != ofGCE:
		return invalid("field \"type\": must be iam or gce")
	case a.Type == "":
		a.Type = kind
	}
	switch {
	case a.Type == ofIAM && len(a.Accounts) == 0:
		return invalid("field \"bound_service_accounts\": is required for roles of type iam; \"*\" is all of a project")
	case a.Type == ofIAM && len(a.Zones)+len(a.Regions) > 0:
		return invalid("fields \"bound_zones\", \"bound_regions\": are for roles of type gce")
	case a.Type == ofIAM && within(a.Accounts, "*") && len(a.Projects) == 0:
		return invalid("field \"bound_projects\": is required where bound_service_accounts is \"*\": any account of Google " +
			"could log in")
	case a.Type == ofGCE && len(a.Projects)+len(a.Accounts) == 0:
		return invalid("field \"bound_projects\": is required for roles of type gce, or bound_service_accounts: any " +
			"machine of Google could log in")
	case a.Longest <= 0 || a.Longest > longestJWT:
		return invalid("field \"max_jwt_exp\": must be above 0 and at most %v", longestJWT)
	}
	return nil
}

// Show implements auth.Record.
func (a *accounts) Show() map[string]any {
	out := map[string]any{"type": a.Type, "max_jwt_exp": auth.Seconds(a.Longest), "add_group_aliases": false}
	for field, at := range a.bounds() {
		out[field] = auth.List(*at)
	}
	a.Tokens.Show(out)
	return out
}

func (gcp) roles(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response, error) {
	return auth.Crud(ctx, view, r, rolePrefix, name, &accounts{Longest: shortJWT})
}

func (gcp) terms(ctx context.Context, view engine.View, role string) (engine.Terms, error) {
	a, err := auth.StillThere[accounts](ctx, view, rolePrefix, role)
	if err != nil {
		return engine.Terms{}, err
	}
	return a.Tokens.Terms(), nil
}

func (gcp) login(ctx context.Context, view engine.View, keys *jwks.Keys, l *attempt) (*secrets.Auth, error) {
	p, err := projectOf(ctx, view)
	if err != nil {
		return nil, err
	}
	r, err := found[accounts](ctx, view, l.role)
	if err != nil {
		return nil, err
	}
	if !auth.Within(r.Tokens.CIDRs, l.Remote) {
		return nil, auth.ErrDenied
	}
	out := r.Tokens.Auth()
	out.Metadata = map[string]string{"role": l.role}
	if r.Type == ofIAM {
		err = r.account(ctx, p, keys, l, out)
	} else {
		err = r.machine(ctx, p, keys, l, out)
	}
	out.AliasMeta = out.Metadata
	return out, err
}

// forRole reports whether a token is for the role: its audience is vault/ROLE, also as an address.
func forRole(said *jwks.Claims, role string) bool {
	for _, a := range said.Audience {
		if _, after, is := strings.Cut(a, "://"); is {
			a = after
		}
		if a == "vault/"+role {
			return true
		}
	}
	return false
}

// account judges a token that a service account signed for itself.
func (r *accounts) account(ctx context.Context, p *project, keys *jwks.Keys, l *attempt, out *secrets.Auth) error {
	before, err := l.token.Unchecked()
	if err != nil {
		return err
	}
	email := before.Subject // it says whose keys to ask for; they decide
	name, domain, ok := strings.Cut(email, "@")
	of, is := strings.CutSuffix(domain, ".iam.gserviceaccount.com")
	if !ok || !is || name == "" || strings.ContainsAny(email, "/?#%") {
		return invalid("the token's sub is no service account like NAME@PROJECT.iam.gserviceaccount.com")
	}
	switch {
	case !within(r.Accounts, email, "*"):
		return invalid("service account %s is not authorized by the role", email)
	case !within(r.Projects, of):
		return invalid("project %q is not authorized by the role", of)
	}
	said, _, err := keys.Verify(ctx, p.source("/service_accounts/v1/jwk/"+url.PathEscape(email)), l.token)
	if err == nil {
		err = (jwks.Leeway{}).Check(&said.Standard, l.Now)
	}
	switch {
	case err != nil:
		return err
	case said.Subject != email || said.Issuer != "" && said.Issuer != email:
		return invalid("the token is of another account than it says")
	case !forRole(said, l.role):
		return invalid("the token's aud must be vault/%s", l.role)
	case !said.HasExpiry || said.Expires.Sub(l.Now) > r.Longest:
		return invalid("the token must expire within %v (max_jwt_exp)", r.Longest)
	}
	out.Alias, out.DisplayName = email, auth.DisplayName(l.Mount, email)
	if p.IAMAlias == "role_id" {
		out.Alias = "role:" + l.role
	}
	out.Metadata["service_account_email"], out.Metadata["project_id"] = email, of
	return nil
}

// machine judges a token of a metadata server.
func (r *accounts) machine(ctx context.Context, p *project, keys *jwks.Keys, l *attempt, out *secrets.Auth) error {
	said, _, err := keys.Verify(ctx, p.source("/oauth2/v3/certs"), l.token)
	if err == nil {
		err = (jwks.Leeway{}).Check(&said.Standard, l.Now)
	}
	if err != nil {
		return err
	}
	at := func(claim string) string { return text(said.All, "/google/compute_engine/"+claim) }
	zone, email := at("zone"), text(said.All, "email")
	if verified, _ := said.All["email_verified"].(bool); !verified {
		email = ""
	}
	region := zone
	if i := strings.LastIndexByte(zone, '-'); i > 0 {
		region = zone[:i]
	}
	switch {
	case said.Issuer != machine:
		return invalid("the token is not of %s", machine)
	case !said.HasExpiry:
		return invalid("the token has no end")
	case !forRole(said, l.role):
		return invalid("the token's aud must be vault/%s", l.role)
	case at("instance_id") == "":
		return invalid("the token names no machine: ask for it with format=full")
	case !within(r.Projects, at("project_id")):
		return invalid("project %q is not authorized by the role", at("project_id"))
	case !within(r.Accounts, email, said.Subject):
		return invalid("service account %q is not authorized by the role", email)
	case !within(r.Zones, zone):
		return invalid("zone %q is not authorized by the role", zone)
	case !within(r.Regions, region):
		return invalid("region %q is not authorized by the role", region)
	}
	out.Alias, out.DisplayName = at("instance_id"), auth.DisplayName(l.Mount, at("instance_name"))
	if p.GCEAlias == "role_id" {
		out.Alias = "role:" + l.role
	}
	for key, value := range map[string]string{"instance_id": at("instance_id"), "instance_name": at("instance_name"),
		"project_id": at("project_id"), "zone": zone, "service_account_email": email, "service_account_id": said.Subject} {
		out.Metadata[key] = value
	}
	return nil
}
