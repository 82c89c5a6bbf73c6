package cloud

import (
	"context"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// azure is Microsoft's cloud: managed identities and other principals of one tenant.
type azure struct{}

// tenant is the configuration of a mount.
type tenant struct {
	ID          string `json:"tenant_id"`
	Resource    string `json:"resource"` // whom tokens are for
	Environment string `json:"environment"`
	ClientID    string `json:"client_id,omitempty"` // kept and shown: no API is asked
	Discovery   string `json:"oidc_discovery_url,omitempty"`
	DiscoveryCA string `json:"oidc_discovery_ca_pem,omitempty"`
}

// issuers are those of each of Microsoft's clouds; a tenant's begins with it.
var issuers = map[string]string{"AzurePublicCloud": "https://sts.windows.net/",
	"AzureUSGovernmentCloud": "https://sts.windows.net/", "AzureChinaCloud": "https://sts.chinacloudapi.cn/"}

func (t *tenant) source() jwks.Source {
	at := t.Discovery
	if at == "" {
		at = issuers[t.Environment] + t.ID + "/"
	}
	return jwks.Source{Discovery: at, DiscoveryCA: t.DiscoveryCA}
}

func (azure) config(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	have, err := auth.Find[tenant](ctx, view, "", configKey)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case secrets.Read:
		if have == nil {
			return nil, auth.ErrNotFound
		}
		return auth.Data(map[string]any{"tenant_id": have.ID, "resource": have.Resource, "environment": have.Environment,
			"client_id": have.ClientID, "oidc_discovery_url": have.Discovery, "oidc_discovery_ca_pem": have.DiscoveryCA})
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
	t := &tenant{Environment: "AzurePublicCloud"}
	if have != nil {
		*t = *have
	}
	for field, at := range map[string]*string{"tenant_id": &t.ID, "resource": &t.Resource, "environment": &t.Environment,
		"client_id": &t.ClientID, "oidc_discovery_url": &t.Discovery, "oidc_discovery_ca_pem": &t.DiscoveryCA} {
		if f.Has(field) {
			*at = f.String(field)
		}
	}
	secret := f.Has("client_secret") && f.String("client_secret") != ""
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case t.ID == "" || strings.ContainsAny(t.ID, "/?#%"):
		return nil, invalid("field \"tenant_id\": is required, the id of a directory")
	case t.Resource == "":
		return nil, invalid("field \"resource\": is required: whom tokens are for, as https://management.azure.com/")
	case issuers[t.Environment] == "":
		return nil, invalid("field \"environment\": %q is none of AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud",
			t.Environment)
	}
	if t.Discovery != "" {
		if err := jwks.CheckURL("oidc_discovery_url", t.Discovery); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
	}
	if err := jwks.CheckCA("oidc_discovery_ca_pem", t.DiscoveryCA); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	resp, err := auth.Keep(configKey, t)
	if err == nil && secret {
		resp.Warnings = []string{"client_secret is not kept: no API of Azure is asked"}
	}
	return resp, err
}

// principals is a role of azure's.
type principals struct {
	Principals    []string    `json:"bound_service_principal_ids,omitempty"`
	Groups        []string    `json:"bound_group_ids,omitempty"`
	Subscriptions []string    `json:"bound_subscription_ids,omitempty"`
	Resources     []string    `json:"bound_resource_groups,omitempty"`
	ScaleSets     []string    `json:"bound_scale_sets,omitempty"`
	Tokens        auth.Params `json:"tokens"`
}

func (p *principals) bounds() map[string]*[]string {
	return map[string]*[]string{"bound_service_principal_ids": &p.Principals, "bound_group_ids": &p.Groups,
		"bound_subscription_ids": &p.Subscriptions, "bound_resource_groups": &p.Resources,
		"bound_scale_sets": &p.ScaleSets}
}

// Read implements auth.Record.
func (p *principals) Read(f *secrets.Fields) error {
	lists(f, p.bounds())
	if err := p.Tokens.Read(f); err != nil {
		return err
	}
	if err := none(f, "a token does not say where its machine is, and no API of Azure is asked",
		"bound_locations"); err != nil {
		return err
	}
	for _, at := range p.bounds() {
		if len(*at) > 0 {
			return nil
		}
	}
	return invalid("must have at least one bound constraint when creating/updating a role: bound_service_principal_ids, " +
		"bound_group_ids, bound_subscription_ids, bound_resource_groups or bound_scale_sets")
}

// Show implements auth.Record.
func (p *principals) Show() map[string]any {
	out := map[string]any{"bound_locations": []string{}}
	for field, at := range p.bounds() {
		out[field] = auth.List(*at)
	}
	p.Tokens.Show(out)
	return out
}

func (azure) roles(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response, error) {
	return auth.Crud(ctx, view, r, rolePrefix, name, &principals{})
}

func (azure) terms(ctx context.Context, view engine.View, role string) (engine.Terms, error) {
	p, err := auth.StillThere[principals](ctx, view, rolePrefix, role)
	if err != nil {
		return engine.Terms{}, err
	}
	return p.Tokens.Terms(), nil
}

// resource is what a managed identity is of, by the claim xms_mirid.
type resource struct{ subscription, group, kind, name string }

func resourceOf(id string) (r resource) {
	parts := strings.Split(strings.TrimPrefix(id, "/"), "/")
	if len(parts) < 8 || !strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourcegroups") ||
		!strings.EqualFold(parts[4], "providers") {
		return resource{}
	}
	return resource{parts[1], parts[3], strings.ToLower(parts[6]), parts[7]}
}

func (azure) login(ctx context.Context, view engine.View, keys *jwks.Keys, l *attempt) (*secrets.Auth, error) {
	t, err := auth.Find[tenant](ctx, view, "", configKey)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, invalid("azure backend not configured: write config first")
	}
	p, err := found[principals](ctx, view, l.role)
	if err != nil {
		return nil, err
	}
	if !auth.Within(p.Tokens.CIDRs, l.Remote) {
		return nil, auth.ErrDenied
	}
	said, issuer, err := keys.Verify(ctx, t.source(), l.token)
	if err == nil {
		err = (jwks.Leeway{}).Check(&said.Standard, l.Now)
	}
	if err != nil {
		return nil, err
	}
	object, of := text(said.All, "oid"), resourceOf(text(said.All, "xms_mirid"))
	var groups []string
	if list, ok := said.All["groups"].([]any); ok {
		for _, g := range list {
			if id, ok := g.(string); ok {
				groups = append(groups, id)
			}
		}
	}
	scaleSet := ""
	if of.kind == "virtualmachinescalesets" {
		scaleSet = of.name
	}
	tid := text(said.All, "tid")
	switch {
	case said.Issuer != issuer || tid != "" && !strings.EqualFold(tid, t.ID):
		return nil, invalid("the token is of another issuer or tenant")
	case !within([]string{strings.TrimSuffix(t.Resource, "/")}, trimmed(said.Audience)...):
		return nil, invalid("the token is not for the resource %s", t.Resource)
	case object == "":
		return nil, invalid("the token names no object (oid)")
	case !within(p.Principals, object):
		return nil, invalid("service principal not authorized: %s", object)
	case !within(p.Groups, groups...):
		return nil, invalid("groups not authorized")
	case !within(p.Subscriptions, of.subscription):
		return nil, invalid("subscription not authorized: the token's xms_mirid names %q", of.subscription)
	case !within(p.Resources, of.group):
		return nil, invalid("resource group not authorized: the token's xms_mirid names %q", of.group)
	case !within(p.ScaleSets, scaleSet):
		return nil, invalid("scale set not authorized: the token's xms_mirid names %q", scaleSet)
	}
	a := p.Tokens.Auth()
	a.Alias, a.DisplayName = object, auth.DisplayName(l.Mount, object)
	a.Metadata = map[string]string{"role": l.role}
	for key, value := range map[string]string{"subscription_id": of.subscription, "resource_group_name": of.group,
		"vmss_name": scaleSet, "app_id": text(said.All, "appid")} {
		if value != "" {
			a.Metadata[key] = value
		}
	}
	if of.kind == "virtualmachines" {
		a.Metadata["vm_name"] = of.name
	}
	a.AliasMeta, a.Groups = a.Metadata, groups
	return a, nil
}

func trimmed(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.TrimSuffix(s, "/"))
	}
	return out
}
