package kubesecrets

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/storage"
)

// live is what a lease, or an entry of what may have been made, knows of objects: all have one name.
type live struct {
	Name      string `json:"name,omitempty"` // "": nothing is made, the account was there
	Namespace string `json:"namespace"`
	// Role is the kind of the role that is made; "": none is.
	Role    string `json:"role,omitempty"`
	Cluster bool   `json:"cluster,omitempty"` // the binding is of the cluster
	Tries   int    `json:"tries,omitempty"`
}

const rbac = "/apis/rbac.authorization.k8s.io/v1/"

func (l *live) in(what string) string {
	return "namespaces/" + url.PathEscape(l.Namespace) + "/" + what
}

func (l *live) accounts() string { return "/api/v1/" + l.in("serviceaccounts") }

func (l *live) bindings() string {
	if l.Cluster {
		return rbac + "clusterrolebindings"
	}
	return rbac + l.in("rolebindings")
}

func (l *live) roles() string {
	if l.Role == ofCluster {
		return rbac + "clusterroles"
	}
	return rbac + l.in("roles")
}

// wish is what a caller asks for.
type wish struct {
	namespace string
	cluster   bool
	ttl       time.Duration
	longest   time.Duration
	audiences []string
}

func (c *call) wish(r *role) (w wish, err error) {
	w = wish{namespace: c.f.String("kubernetes_namespace"), cluster: c.f.Bool("cluster_role_binding", false),
		audiences: r.Audiences}
	asked := c.f.Duration("ttl", 0)
	if c.f.Has("audiences") {
		w.audiences = c.f.Strings("audiences")
	}
	if err := c.f.Err(); err != nil {
		return w, err
	}
	switch {
	case w.namespace == "":
		return w, elsewhere.Invalid("field \"kubernetes_namespace\": is required")
	case !isDNS(w.namespace, 63):
		return w, elsewhere.Invalid("field \"kubernetes_namespace\": %q is no name of a namespace", w.namespace)
	case w.cluster && r.Account != "":
		return w, elsewhere.Invalid("field \"cluster_role_binding\": the role has a service_account_name: nothing is bound")
	case w.cluster && r.Kind != ofCluster:
		return w, elsewhere.Invalid("field \"cluster_role_binding\": a ClusterRoleBinding cannot ref a Role: the role " +
			"needs kubernetes_role_type=ClusterRole")
	case asked < 0:
		return w, elsewhere.Invalid("field \"ttl\": must not be negative")
	}
	if asked == 0 {
		asked = r.TTL
	}
	w.ttl, w.longest = elsewhere.Lifetimes(c.e.TTLs, asked, r.MaxTTL)
	return w, nil
}

// creds makes a token for whoever asks.
func (c *call) creds() (*secrets.Response, error) {
	r, err := elsewhere.Find[role](c, c.view, roles+c.name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, elsewhere.Invalid("role %q does not exist", c.name)
	}
	w, err := c.wish(r)
	if err != nil {
		return nil, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	if err := c.allows(r, cluster, w.namespace); err != nil {
		return nil, err
	}
	of := &live{Namespace: w.namespace, Cluster: w.cluster}
	if r.Account != "" {
		return c.token(c, cluster, of, r.Account, w)
	}
	if of.Name, err = c.objectName(r); err != nil {
		return nil, err
	}
	if r.Rules != "" {
		of.Role = r.Kind
	}
	entry := elsewhere.DueKey(walPrefix, c.r.Now.Add(elsewhere.Wait), of.Name)
	resp, err := elsewhere.Store(entry, of)
	if err != nil {
		return nil, err
	}
	resp.Then = elsewhere.Step(func(ctx context.Context) (*secrets.Response, error) {
		if err := of.make(ctx, cluster, r); err != nil {
			return nil, err // the entry stays: what was made, if anything was, is deleted by it
		}
		out, err := c.token(ctx, cluster, of, of.Name, w)
		if err == nil {
			out.Ops = []secrets.Op{storage.Delete(entry)}
		}
		return out, err
	})
	return resp, nil
}

// make makes the role where there are rules, the account and the binding.
func (l *live) make(ctx context.Context, cluster tokenreview.Cluster, r *role) error {
	meta := func(namespace string) map[string]any {
		labels := map[string]string{}
		maps.Copy(labels, r.Labels)
		labels["app.kubernetes.io/managed-by"] = "corbel-secrets"
		m := map[string]any{"name": l.Name, "labels": labels}
		if namespace != "" {
			m["namespace"] = namespace
		}
		if len(r.Annotations) > 0 {
			m["annotations"] = r.Annotations
		}
		return m
	}
	within := func(ofCluster bool) string {
		if ofCluster {
			return ""
		}
		return l.Namespace
	}
	send := func(path string, object map[string]any) error {
		return tokenreview.Send(ctx, cluster, http.MethodPost, path, object, nil)
	}
	to := r.Role
	if l.Role != "" {
		rules, err := r.rules()
		if err != nil {
			return errkind.E(errkind.Corrupt, "", err)
		}
		to = l.Name
		err = send(l.roles(), map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": l.Role,
			"metadata": meta(within(l.Role == ofCluster)), "rules": rules.Rules})
		if err != nil {
			return refusal(err)
		}
	}
	err := send(l.accounts(), map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": meta(l.Namespace)})
	if err != nil {
		return refusal(err)
	}
	kind := "RoleBinding"
	if l.Cluster {
		kind = "ClusterRoleBinding"
	}
	return refusal(send(l.bindings(), map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
		"metadata": meta(within(l.Cluster)),
		"roleRef":  map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": r.Kind, "name": to},
		"subjects": []map[string]string{{"kind": "ServiceAccount", "name": l.Name, "namespace": l.Namespace}}}))
}

// refusal is an error of the cluster that the caller hears: what is not found there is no path of the mount.
func refusal(err error) error {
	if errkind.Is(err, errkind.NotFound) || errkind.Is(err, errkind.Conflict) {
		return elsewhere.Invalid("%s", errkind.Text(err))
	}
	return err
}

// token asks for a token of an account, and answers with it.
func (c *call) token(ctx context.Context, cluster tokenreview.Cluster, of *live, account string,
	w wish) (*secrets.Response, error) {
	spec := map[string]any{"expirationSeconds": int64(w.ttl / time.Second)}
	if len(w.audiences) > 0 {
		spec["audiences"] = w.audiences
	}
	var made struct {
		Status struct {
			Token   string    `json:"token"`
			Expires time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	err := tokenreview.Send(ctx, cluster, http.MethodPost, of.accounts()+"/"+url.PathEscape(account)+"/token",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}, &made)
	if err != nil {
		return nil, refusal(err)
	}
	if made.Status.Token == "" {
		return nil, errkind.New(errkind.Unavailable, "Kubernetes answers a TokenRequest without a token")
	}
	internal, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	out, err := elsewhere.Answer(map[string]any{"service_account_name": account,
		"service_account_namespace": of.Namespace, "service_account_token": made.Status.Token})
	if err != nil {
		return nil, err
	}
	if lives := made.Status.Expires.Sub(c.r.Now).Round(time.Second); !made.Status.Expires.IsZero() && lives < w.ttl {
		w.ttl = max(lives, time.Second) // the cluster bounds its tokens
		out.Warnings = []string{"the cluster gave the token a shorter life than was asked for"}
	}
	out.Lease = &secrets.Lease{TTL: w.ttl, MaxTTL: w.longest, Internal: internal}
	return out, nil
}

// end deletes what was made; what is not there is no error.
func (c *call) end(of *live) error {
	if of.Name == "" {
		return nil
	}
	cluster, err := c.cluster()
	if err != nil {
		return err
	}
	paths := []string{of.bindings(), of.accounts()} // no right is left to an account that cannot be deleted
	if of.Role != "" {
		paths = append(paths, of.roles())
	}
	for _, path := range paths {
		gone := tokenreview.Send(c, cluster, http.MethodDelete, path+"/"+url.PathEscape(of.Name), nil, nil)
		if !errkind.Is(gone, errkind.NotFound) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
