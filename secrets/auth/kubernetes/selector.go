package kubernetes

import (
	"context"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets/auth"
)

// names reports whether the role names a namespace.
func (r *role) names(namespace string) bool {
	return slices.ContainsFunc(r.Namespaces, func(pattern string) bool { return auth.Glob(pattern, namespace) })
}

// inNamespace checks the labels of the account's namespace, where the role asks for some and does not name it.
func (r *role) inNamespace(ctx context.Context, cluster tokenreview.Cluster, a *tokenreview.Account) error {
	if r.Selector == "" || r.names(a.Namespace) {
		return nil
	}
	s, err := tokenreview.ParseSelector(r.Selector)
	if err != nil {
		return errkind.E(errkind.Corrupt, "", err)
	}
	ns, err := tokenreview.Namespace(ctx, cluster, a.Namespace)
	if err == nil && !s.Picks(ns.Labels) || errkind.Is(err, errkind.NotFound) {
		return errkind.New(errkind.Denied, "namespace not authorized")
	}
	return err
}

const (
	notePrefix = "vault.hashicorp.com/alias-metadata-"
	notesMost  = 64
)

// notes are the annotations of the account that become metadata of its alias.
func (c *config) notes(ctx context.Context, cluster tokenreview.Cluster, a *tokenreview.Account) (map[string]string,
	error) {
	if !c.Annotations {
		return nil, nil
	}
	account, err := tokenreview.ServiceAccount(ctx, cluster, a.Namespace, a.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, value := range account.Annotations {
		key, ok := strings.CutPrefix(name, notePrefix)
		if !ok {
			continue
		}
		if strings.HasPrefix(key, "service_account_") || key == "" || len(value) > 512 || len(out) == notesMost {
			return nil, errkind.Errorf(errkind.Denied, "the annotation %s%.64s of the service account cannot be metadata: "+
				"its name is reserved or empty, it is longer than 512 bytes, or there are more than %d", notePrefix, key, notesMost)
		}
		out[key] = value
	}
	return out, nil
}
