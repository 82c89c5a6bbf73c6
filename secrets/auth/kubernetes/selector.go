package kubernetes

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets/auth"
)

// selector picks namespaces by their labels, as Kubernetes' label selectors do: all of it must hold.
type selector struct {
	Labels map[string]string `json:"matchLabels"`
	Rules  []labelRule       `json:"matchExpressions"`
}

type labelRule struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// parseSelector reads a selector; one that would pick everything is refused.
func parseSelector(text string) (*selector, error) {
	s := &selector{}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, errkind.Errorf(errkind.Invalid,
			"field \"bound_service_account_namespace_selector\": must be a label selector in JSON: %w", err)
	}
	if len(s.Labels) == 0 && len(s.Rules) == 0 {
		return nil, errkind.New(errkind.Invalid, "field \"bound_service_account_namespace_selector\": has neither "+
			"matchLabels nor matchExpressions, and would pick every namespace")
	}
	for _, r := range s.Rules {
		valued := r.Operator == "In" || r.Operator == "NotIn"
		if r.Key == "" || valued != (len(r.Values) > 0) ||
			(!valued && r.Operator != "Exists" && r.Operator != "DoesNotExist") {
			return nil, errkind.Errorf(errkind.Invalid, "field \"bound_service_account_namespace_selector\": %q %q %q is no "+
				"expression: In and NotIn need values, Exists and DoesNotExist have none", r.Key, r.Operator, r.Values)
		}
	}
	return s, nil
}

func (s *selector) picks(labels map[string]string) bool {
	for k, want := range s.Labels {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.Rules, func(r labelRule) bool {
		got, ok := labels[r.Key]
		switch r.Operator {
		case "In":
			return !ok || !slices.Contains(r.Values, got)
		case "NotIn":
			return ok && slices.Contains(r.Values, got)
		case "Exists":
			return !ok
		}
		return ok
	})
}

// names reports whether the role names a namespace.
func (r *role) names(namespace string) bool {
	return slices.ContainsFunc(r.Namespaces, func(pattern string) bool { return auth.Glob(pattern, namespace) })
}

// inNamespace checks the labels of the account's namespace, where the role asks for some and does not name it.
func (r *role) inNamespace(ctx context.Context, cluster tokenreview.Cluster, a *tokenreview.Account) error {
	if r.Selector == "" || r.names(a.Namespace) {
		return nil
	}
	s, err := parseSelector(r.Selector)
	if err != nil {
		return errkind.E(errkind.Corrupt, "", err)
	}
	ns, err := tokenreview.Namespace(ctx, cluster, a.Namespace)
	if err == nil && !s.picks(ns.Labels) || errkind.Is(err, errkind.NotFound) {
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
