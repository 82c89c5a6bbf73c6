package login

import (
	"context"
	"errors"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/tokenreview"
)

// kubernetesConfig is the Config of an auth method of type kubernetes.
type kubernetesConfig struct {
	Host              string
	CACert            string
	ServiceAccountJWT string
}

func kubernetesConfigOf(m *acl.AuthMethod) (*kubernetesConfig, error) {
	c := &kubernetesConfig{}
	if err := decodeConfig(m, c); err != nil {
		return nil, err
	}
	switch {
	case c.Host == "":
		return nil, errors.New("Config.Host is required")
	case c.CACert == "":
		return nil, errors.New("Config.CACert is required")
	case c.ServiceAccountJWT == "":
		return nil, errors.New("Config.ServiceAccountJWT is required")
	}
	return c, errors.Join(jwks.CheckURL("Config.Host", c.Host), jwks.CheckCA("Config.CACert", c.CACert))
}

// serviceAccount is what a login with Kubernetes says.
func serviceAccount(namespace, name, uid string) grants.Claims {
	return grants.Claims{
		Vars: map[string]string{"serviceaccount.namespace": namespace, "serviceaccount.name": name,
			"serviceaccount.uid": uid},
		Selectable: map[string]any{"serviceaccount": map[string]any{"namespace": namespace, "name": name, "uid": uid}},
	}
}

// kubernetes asks the cluster whose the token is.
func (v *Verifier) kubernetes(ctx context.Context, m *acl.AuthMethod, credential string) (grants.Claims, error) {
	c, err := kubernetesConfigOf(m)
	if err != nil {
		return grants.Claims{}, err
	}
	a, err := tokenreview.Ask(ctx, tokenreview.Cluster{Host: c.Host, CA: c.CACert, Reviewer: c.ServiceAccountJWT},
		credential)
	if err != nil {
		return grants.Claims{}, err
	}
	return serviceAccount(a.Namespace, a.Name, a.UID), nil
}
