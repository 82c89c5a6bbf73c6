package tokenreview

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

// Meta is what the API says of an object beside what it holds.
type Meta struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Namespace reads a namespace. Errors are as those of ServiceAccount.
func Namespace(ctx context.Context, c Cluster, name string) (*Meta, error) {
	return read(ctx, c, "/api/v1/namespaces/"+url.PathEscape(name), "namespaces")
}

// ServiceAccount reads an account. The error is of kind NotFound where there is none, Denied where the reviewer may not
// read it, Unavailable where the cluster cannot be asked.
func ServiceAccount(ctx context.Context, c Cluster, namespace, name string) (*Meta, error) {
	return read(ctx, c, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/serviceaccounts/"+url.PathEscape(name),
		"serviceaccounts")
}

func read(ctx context.Context, c Cluster, path, what string) (*Meta, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Host, "/")+path, nil)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Authorization", "Bearer "+c.Reviewer)
	var answer struct {
		Metadata Meta `json:"metadata"`
	}
	status, err := jwks.AskStatus(ctx, c.CA, q, &answer)
	switch status {
	case http.StatusNotFound:
		return nil, errkind.Errorf(errkind.NotFound, "Kubernetes has no %s", path)
	case http.StatusForbidden, http.StatusUnauthorized:
		return nil, errkind.Errorf(errkind.Denied, "the reviewer may not get %s in Kubernetes: give it that right", what)
	}
	if err != nil {
		return nil, err
	}
	return &answer.Metadata, nil
}
