// Package tokenreview asks a Kubernetes cluster whose service account a token is, by its TokenReview API
// (authentication.k8s.io/v1). It keeps nothing; deadlines and bounds are those of jwks.Ask.
package tokenreview

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

// Cluster is who is asked.
type Cluster struct {
	Host     string // an http or https address
	CA       string // PEM
	Reviewer string // the token that asks: it may create TokenReviews (system:auth-delegator)
}

// Account is a service account.
type Account struct{ Namespace, Name, UID string }

// review is the part of the API's object that is asked with and answered.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences,omitempty"`
	} `json:"spec"`
	Status struct {
		Authenticated bool     `json:"authenticated"`
		Error         string   `json:"error,omitempty"`
		Audiences     []string `json:"audiences,omitempty"`
		User          struct {
			Username string `json:"username"`
			UID      string `json:"uid"`
		} `json:"user"`
	} `json:"status,omitzero"`
}

// Ask gives the account of a token, which must be for one of the audiences where some are named. The error is of kind
// Denied where the cluster does not vouch for it, Unavailable where it cannot be asked.
func Ask(ctx context.Context, c Cluster, token string, audiences ...string) (*Account, error) {
	r := review{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	r.Spec.Token, r.Spec.Audiences = token, audiences
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.Host, "/")+
		"/apis/authentication.k8s.io/v1/tokenreviews", bytes.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Authorization", "Bearer "+c.Reviewer)
	var answer review
	if err := jwks.Ask(ctx, c.CA, q, &answer); err != nil {
		return nil, err
	}
	s := &answer.Status
	if !s.Authenticated || s.Error != "" {
		return nil, errkind.New(errkind.Denied, "Kubernetes does not know the bearer token")
	}
	// from a cluster that ignores them
	if len(audiences) > 0 && !slices.ContainsFunc(audiences,
		func(a string) bool { return slices.Contains(s.Audiences, a) }) {
		return nil, errkind.New(errkind.Denied, "Kubernetes does not vouch for the token's audience")
	}
	return ParseSubject(s.User.Username, s.User.UID)
}

// ParseSubject reads the name of a service account as tokens and reviews have it.
func ParseSubject(subject, uid string) (*Account, error) {
	parts := strings.Split(subject, ":") // system:serviceaccount:NAMESPACE:NAME
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" {
		return nil, errkind.New(errkind.Denied, "the bearer token is not a service account's")
	}
	return &Account{parts[2], parts[3], uid}, nil
}
