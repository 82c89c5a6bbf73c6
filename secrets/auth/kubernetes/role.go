package kubernetes

import (
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
)

// What an alias is called by.
const (
	byUID  = "serviceaccount_uid"
	byName = "serviceaccount_name"
)

// role says which accounts log in, and as what.
type role struct {
	Names       []string    `json:"bound_service_account_names"`
	Namespaces  []string    `json:"bound_service_account_namespaces"`
	Selector    string      `json:"namespace_selector,omitempty"` // of namespaces beside those that are named
	Audience    string      `json:"audience,omitempty"`
	AliasSource string      `json:"alias_name_source"`
	Tokens      auth.Params `json:"tokens"`
}

// Read implements auth.Record.
func (r *role) Read(f *secrets.Fields) error {
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	if f.Has("bound_service_account_names") {
		r.Names = f.Strings("bound_service_account_names")
	}
	if f.Has("bound_service_account_namespaces") {
		r.Namespaces = f.Strings("bound_service_account_namespaces")
	}
	if f.Has("audience") {
		r.Audience = f.String("audience")
	}
	if source := f.String("alias_name_source"); source != "" {
		r.AliasSource = source
	}
	if r.AliasSource == "" {
		r.AliasSource = byUID
	}
	if f.Has("bound_service_account_namespace_selector") {
		r.Selector = f.String("bound_service_account_namespace_selector")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if r.Selector != "" {
		if _, err := tokenreview.ParseSelector(r.Selector); err != nil {
			return errkind.Errorf(errkind.Invalid, "field \"bound_service_account_namespace_selector\": %w", err)
		}
	}
	switch {
	case len(r.Names) == 0:
		return errkind.New(errkind.Invalid, "\"bound_service_account_names\" can not be empty")
	case len(r.Namespaces) == 0 && r.Selector == "":
		return errkind.New(errkind.Invalid, "\"bound_service_account_namespaces\" can not be empty if "+
			"\"bound_service_account_namespace_selector\" is not set")
	case slices.Contains(r.Names, "*") && slices.Contains(r.Namespaces, "*"):
		return errkind.New(errkind.Invalid, "bound_service_account_names and bound_service_account_namespaces can not "+
			"both be \"*\"")
	case r.AliasSource != byUID && r.AliasSource != byName:
		return errkind.Errorf(errkind.Invalid, "field \"alias_name_source\": %q is neither %s nor %s", r.AliasSource,
			byUID, byName)
	}
	return nil
}

// Show implements auth.Record.
func (r *role) Show() map[string]any {
	out := map[string]any{"bound_service_account_names": r.Names,
		"bound_service_account_namespaces":         auth.List(r.Namespaces),
		"bound_service_account_namespace_selector": r.Selector, "audience": r.Audience, "alias_name_source": r.AliasSource}
	r.Tokens.Show(out)
	return out
}
