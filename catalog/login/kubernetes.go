package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
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
		Vars:       map[string]string{"serviceaccount.namespace": namespace, "serviceaccount.name": name, "serviceaccount.uid": uid},
		Selectable: map[string]any{"serviceaccount": map[string]any{"namespace": namespace, "name": name, "uid": uid}},
	}
}

// tokenReview is the part of Kubernetes' object that is asked with and answered.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token"`
	} `json:"spec"`
	Status struct {
		Authenticated bool   `json:"authenticated"`
		Error         string `json:"error"`
		User          struct {
			Username string `json:"username"`
			UID      string `json:"uid"`
		} `json:"user"`
	} `json:"status"`
}

// kubernetes asks the cluster whose the token is.
func (v *Verifier) kubernetes(ctx context.Context, m *acl.AuthMethod, credential string) (grants.Claims, error) {
	c, err := kubernetesConfigOf(m)
	if err != nil {
		return grants.Claims{}, err
	}
	review := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	review.Spec.Token = credential
	body, err := json.Marshal(review)
	if err != nil {
		return grants.Claims{}, err
	}
	address := strings.TrimSuffix(c.Host, "/") + "/apis/authentication.k8s.io/v1/tokenreviews"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return grants.Claims{}, errkind.E(errkind.Invalid, "", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.ServiceAccountJWT)
	var answer tokenReview
	if err := jwks.Ask(ctx, c.CACert, r, &answer); err != nil {
		return grants.Claims{}, err
	}
	if !answer.Status.Authenticated || answer.Status.Error != "" {
		return grants.Claims{}, denied("Kubernetes does not know the bearer token")
	}
	parts := strings.Split(answer.Status.User.Username, ":") // system:serviceaccount:NAMESPACE:NAME
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" {
		return grants.Claims{}, denied("the bearer token is not a service account's")
	}
	return serviceAccount(parts[2], parts[3], answer.Status.User.UID), nil
}
