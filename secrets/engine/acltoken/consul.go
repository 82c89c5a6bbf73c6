package acltoken

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/secrets/engine/record"
)

// consul is the plane of Consul's API.
type consul struct{}

const consulHeader = "X-Consul-Token"

func (consul) name() string  { return "consul" }
func (consul) roles() string { return "roles" }
func (consul) role() role    { return &consulRole{} }

func (consul) params(a *access) record.Params {
	return record.Params{{Name: "address", At: &a.Address}, {Name: "scheme", At: &a.Scheme}, {Name: "ca_cert", At: &a.CA},
		{Name: "client_cert", At: &a.Cert}}
}

func (consul) url(a *access) string {
	if strings.Contains(a.Address, "://") {
		return a.Address
	}
	return a.Scheme + "://" + a.Address
}

// consulRole is a role of Consul's, under "roles/<name>".
type consulRole struct {
	Policies  []string      `json:"consul_policies,omitempty"`
	Roles     []string      `json:"consul_roles,omitempty"`
	Services  []string      `json:"service_identities,omitempty"` // NAME or NAME:DC,DC
	Nodes     []string      `json:"node_identities,omitempty"`    // NAME:DC
	Namespace string        `json:"consul_namespace,omitempty"`
	Partition string        `json:"partition,omitempty"`
	Local     bool          `json:"local,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`
	MaxTTL    time.Duration `json:"max_ttl,omitempty"`
}

func (r *consulRole) params() record.Params {
	return record.Params{{Name: "consul_policies", At: &r.Policies}, {Name: "consul_roles", At: &r.Roles},
		{Name: "service_identities", At: &r.Services}, {Name: "node_identities", At: &r.Nodes},
		{Name: "consul_namespace", At: &r.Namespace}, {Name: "partition", At: &r.Partition},
		{Name: "local", At: &r.Local}, {Name: "ttl", At: &r.TTL}, {Name: "max_ttl", At: &r.MaxTTL}}
}

func (r *consulRole) lifetimes() (ttl, longest time.Duration) { return r.TTL, r.MaxTTL }

func (r *consulRole) check() error {
	switch {
	case len(r.Policies)+len(r.Roles)+len(r.Services)+len(r.Nodes) == 0:
		return invalid("use either a policy, a role, a set of service identities or a set of node identities: one of the " +
			"fields \"consul_policies\", \"consul_roles\", \"service_identities\", \"node_identities\" is needed")
	case r.Namespace != "" && r.Namespace != "default" || r.Partition != "" && r.Partition != "default":
		return invalid("fields \"consul_namespace\", \"partition\": only default is supported")
	}
	for _, text := range r.Nodes {
		if name, dc, ok := strings.Cut(text, ":"); !ok || name == "" || dc == "" {
			return invalid("field \"node_identities\": %q is not like NODE:DATACENTER", text)
		}
	}
	return nil
}

type link struct {
	Name string `json:"Name"`
}

func links(names []string) (list []link) {
	for _, n := range names {
		list = append(list, link{n})
	}
	return list
}

func (consul) make(ctx context.Context, to *caller, as role, of *live) (map[string]any, error) {
	r := as.(*consulRole)
	type service struct {
		ServiceName string
		Datacenters []string `json:",omitempty"`
	}
	type node struct{ NodeName, Datacenter string }
	body := struct {
		AccessorID, Description string
		Policies, Roles         []link    `json:",omitempty"`
		ServiceIdentities       []service `json:",omitempty"`
		NodeIdentities          []node    `json:",omitempty"`
		Local                   bool
	}{AccessorID: of.Accessor, Description: of.Name, Policies: links(r.Policies), Roles: links(r.Roles), Local: r.Local}
	for _, text := range r.Services {
		name, where, _ := strings.Cut(text, ":")
		s := service{ServiceName: name}
		if where != "" {
			s.Datacenters = strings.Split(where, ",")
		}
		body.ServiceIdentities = append(body.ServiceIdentities, s)
	}
	for _, text := range r.Nodes {
		name, dc, _ := strings.Cut(text, ":")
		body.NodeIdentities = append(body.NodeIdentities, node{name, dc})
	}
	var made struct{ AccessorID, SecretID string }
	if err := to.ask(ctx, http.MethodPut, "/v1/acl/token", consulHeader, body, &made); err != nil {
		return nil, err
	}
	of.Accessor, of.Made = made.AccessorID, true
	return map[string]any{"token": made.SecretID, "accessor": made.AccessorID, "local": r.Local,
		"consul_namespace": r.Namespace, "partition": r.Partition}, nil
}

func (consul) end(ctx context.Context, to *caller, of *live) error {
	err := to.ask(ctx, http.MethodDelete, "/v1/acl/token/"+of.Accessor, consulHeader, nil, nil)
	var no *refused
	if errors.As(err, &no) && (no.status == http.StatusNotFound ||
		strings.Contains(no.text, "Cannot find token to delete") || strings.Contains(no.text, "ACL not found")) {
		// Denied and "not found" have one status. A mount whose own token ended has not ended this one.
		if to.ask(ctx, http.MethodGet, "/v1/acl/token/self", consulHeader, nil, &struct{}{}) == nil {
			return nil
		}
	}
	return err
}

func (consul) bootstrap(ctx context.Context, to *caller) (string, error) {
	var made struct{ SecretID string }
	err := to.ask(ctx, http.MethodPut, "/v1/acl/bootstrap", consulHeader, nil, &made)
	return made.SecretID, err
}
