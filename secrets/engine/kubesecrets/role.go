package kubesecrets

import (
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/naming"
	"corbel.dev/corbel/secrets/engine/record"
)

// role is one of the mount's, under "roles/<name>".
type role struct {
	Namespaces  []string          `json:"allowed_kubernetes_namespaces,omitempty"`
	Selector    string            `json:"allowed_kubernetes_namespace_selector,omitempty"`
	TTL         time.Duration     `json:"token_default_ttl,omitempty"`
	MaxTTL      time.Duration     `json:"token_max_ttl,omitempty"`
	Audiences   []string          `json:"token_default_audiences,omitempty"`
	Account     string            `json:"service_account_name,omitempty"`
	Role        string            `json:"kubernetes_role_name,omitempty"`
	Kind        string            `json:"kubernetes_role_type"`
	Rules       string            `json:"generated_role_rules,omitempty"` // JSON or YAML
	Template    string            `json:"name_template,omitempty"`
	Labels      map[string]string `json:"extra_labels,omitempty"`
	Annotations map[string]string `json:"extra_annotations,omitempty"`
}

const (
	namespaced = "Role"
	ofCluster  = "ClusterRole"
	// nameTemplate makes names of objects.
	nameTemplate = `{{printf "v-%s-%s-%s-%s" (.DisplayName | truncate 8) (.RoleName | truncate 8) (unix_time) ` +
		`(random 24) | truncate 62 | lowercase}}`
	nameMost = 253 // a DNS name
)

func (r *role) params() record.Params {
	return record.Params{{Name: "allowed_kubernetes_namespaces", At: &r.Namespaces},
		{Name: "allowed_kubernetes_namespace_selector", At: &r.Selector}, {Name: "token_default_ttl", At: &r.TTL},
		{Name: "token_max_ttl", At: &r.MaxTTL}, {Name: "token_default_audiences", At: &r.Audiences},
		{Name: "service_account_name", At: &r.Account}, {Name: "kubernetes_role_name", At: &r.Role},
		{Name: "kubernetes_role_type", At: &r.Kind}, {Name: "generated_role_rules", At: &r.Rules},
		{Name: "name_template", At: &r.Template}, {Name: "extra_labels", At: &r.Labels},
		{Name: "extra_annotations", At: &r.Annotations}}
}

// rules are those of a role that is made.
type rules struct {
	Rules []map[string]any `json:"rules"`
}

func (r *role) rules() (out rules, err error) {
	if err = tokenreview.Decode(r.Rules, &out); err == nil && len(out.Rules) == 0 {
		err = errkind.New(errkind.Invalid, "has no rules")
	}
	return out, err
}

func (c *call) readRole() (*secrets.Response, error) {
	r, err := elsewhere.Find[role](c, c.view, roles+c.name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, elsewhere.ErrNotFound
	}
	out := map[string]any{"name": c.name}
	r.params().Show(out)
	return elsewhere.Answer(out)
}

func (c *call) writeRole() (*secrets.Response, error) {
	r, err := elsewhere.Find[role](c, c.view, roles+c.name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = &role{Kind: namespaced}
	}
	if err := r.params().Read(c.f); err != nil {
		return nil, err
	}
	for _, kind := range []string{namespaced, ofCluster} {
		if strings.EqualFold(r.Kind, kind) {
			r.Kind = kind
		}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if _, err := c.objectName(r); err != nil {
		return nil, err
	}
	return elsewhere.Store(roles+c.name, r)
}

func (r *role) check() error {
	ways := 0
	for _, text := range []string{r.Account, r.Role, r.Rules} {
		if text != "" {
			ways++
		}
	}
	switch {
	case len(r.Namespaces) == 0 && r.Selector == "":
		return elsewhere.Invalid("one (at least) of allowed_kubernetes_namespaces or " +
			"allowed_kubernetes_namespace_selector must be set")
	case ways != 1:
		return elsewhere.Invalid("one (and only one) of service_account_name, kubernetes_role_name or " +
			"generated_role_rules must be set")
	case r.Kind != namespaced && r.Kind != ofCluster:
		return elsewhere.Invalid("field \"kubernetes_role_type\": must be Role or ClusterRole")
	case r.MaxTTL > 0 && r.TTL > r.MaxTTL:
		return elsewhere.Invalid("field \"token_default_ttl\": is greater than token_max_ttl")
	}
	for field, text := range map[string]string{"service_account_name": r.Account, "kubernetes_role_name": r.Role} {
		if text != "" && strings.ContainsAny(text, "/%?# ") {
			return elsewhere.Invalid("field %q: %q is no name of an object", field, text)
		}
	}
	if r.Selector != "" {
		if _, err := tokenreview.ParseSelector(r.Selector); err != nil {
			return elsewhere.Invalid("field \"allowed_kubernetes_namespace_selector\": %v", err)
		}
	}
	if r.Rules != "" {
		if _, err := r.rules(); err != nil {
			return elsewhere.Invalid("field \"generated_role_rules\": must be an object with rules, in JSON or YAML: %v", err)
		}
	}
	return nil
}

// objectName draws a name for what is made.
func (c *call) objectName(r *role) (string, error) {
	text := r.Template
	if text == "" {
		text = nameTemplate
	}
	t, err := naming.Parse("name_template", text, c.r.Now, nil)
	if err != nil {
		return "", elsewhere.Invalid("field \"name_template\": %v", err)
	}
	holder, by := naming.Plain(c.r.Holder), naming.Plain(c.name)
	name, err := t.Make(strings.ReplaceAll(holder, "_", "-"), strings.ReplaceAll(by, "_", "-"),
		naming.Rules{Most: nameMost, Unfit: "/%?# "})
	if err != nil {
		return "", elsewhere.Invalid("field \"name_template\": %v", err)
	}
	if !isDNS(name, nameMost) {
		return "", elsewhere.Invalid("field \"name_template\": it makes %q; a name has lower case letters, digits, '-' and "+
			"'.', with a letter or digit at its begin and end", name)
	}
	return name, nil
}

// isDNS reports whether a text can be the name of a service account.
func isDNS(name string, most int) bool {
	if name == "" || len(name) > most {
		return false
	}
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' || strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
		}) {
			return false
		}
	}
	return true
}

// allows finds out whether a role is for a namespace: it is named, or the selector picks it.
func (c *call) allows(r *role, cluster tokenreview.Cluster, namespace string) error {
	no := elsewhere.Invalid("kubernetes_namespace %q is not present in role's allowed_kubernetes_namespaces or does not "+
		"match role's label selector", namespace)
	switch {
	case slices.Contains(r.Namespaces, "*") || slices.Contains(r.Namespaces, namespace):
		return nil
	case r.Selector == "":
		return no
	}
	s, err := tokenreview.ParseSelector(r.Selector)
	if err != nil {
		return errkind.E(errkind.Corrupt, "", err)
	}
	ns, err := tokenreview.Namespace(c, cluster, namespace)
	switch {
	case errkind.Is(err, errkind.NotFound), err == nil && !s.Picks(ns.Labels):
		return no
	case errkind.Is(err, errkind.Denied):
		return elsewhere.Invalid("%s", errkind.Text(err))
	}
	return err
}
