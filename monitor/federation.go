package monitor

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/kit/tagproto"
)

// DefaultReplication is how many seconds pass between two looks at a source that its replicator does not say anything
// about (the contract's).
const DefaultReplication = 30

// Replicator is a source of objects: those of one type, in one namespace or in all, are copied from another cluster
// into this one (federation/v1 EtcdReplicator; there is no etcd here, so URL is the other cluster's API).
type Replicator struct {
	Meta `json:"metadata,omitempty" pb:"1"`
	URL  string `json:"url" pb:"2"` // https://host:8080, or http:// with Insecure
	// CACert, Cert, Key and APIKeyFile are files on the servers of this cluster: the authority to trust, a certificate
	// to show, and an API key of a user of the other cluster.
	CACert     string         `json:"ca_cert,omitempty" pb:"3"`
	Cert       string         `json:"cert,omitempty" pb:"4"`
	KeyFile    string         `json:"key,omitempty" pb:"5"`
	APIKeyFile string         `json:"api_key_file,omitempty" pb:"6"`
	Insecure   bool           `json:"insecure" pb:"7"` // plain HTTP, or a certificate that nobody vouches for
	APIVersion string         `json:"api_version" pb:"8"`
	Resource   string         `json:"resource" pb:"9"`             // a type's Kind
	Only       string         `json:"namespace,omitempty" pb:"10"` // "" is all
	Interval   int64          `json:"replication_interval_seconds" pb:"11"`
	Extra      tagproto.Extra `json:"-"`
}

// Validate returns what is wrong with the replicator.
func (r *Replicator) Validate() error {
	if err := named("replicator", r.Name); err != nil {
		return err
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url %q is not the http:// or https:// address of another cluster's API", r.URL)
	case u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "":
		return errors.New("url must be scheme, host and port alone")
	case u.Scheme == "http" && !r.Insecure:
		return errors.New("url: http:// shows the API key and the objects to the network: use https://, or set insecure " +
			"to true")
	case r.APIKeyFile == "":
		return errors.New("api_key_file must be set: a file on this cluster's servers with an API key of the other one")
	case (r.Cert == "") != (r.KeyFile == ""):
		return errors.New("cert and key must be set together")
	case r.Interval < 0 || r.Interval > 86400:
		return fmt.Errorf("replication_interval_seconds %d must be from 1 to 86400", r.Interval)
	}
	t, ok := r.Type()
	switch {
	case !ok:
		return fmt.Errorf("resource %q of api_version %q is not one that can be replicated", r.Resource, r.APIVersion)
	case r.Only != "" && !t.Scoped:
		return fmt.Errorf("namespace: %s belongs to no namespace", r.Resource)
	}
	return nil
}

// Type is the type of what is replicated, where there is one that may be.
func (r *Replicator) Type() (Type, bool) { return ReplicatedType(r.APIVersion, r.Resource) }

// ReplicatedType returns the type of that name in files, where it may be replicated: sources themselves may not,
// since a copy of one would have clusters copy from each other without anybody having said so, and no description of
// a database or of a provider of logins, which are this cluster's own.
func ReplicatedType(version, kind string) (Type, bool) {
	for _, t := range Types {
		named := t.Kind == kind && t.APIVersion == version ||
			t.Name == "entities" && kind == "Entity" && version == "core/v2" ||
			t.Name == "providers" && version == "secrets/v1" && kind == "VaultProvider"
		if named && t.APIVersion != "" && t.APIVersion != "store/v1" && t.APIVersion != federationAPI &&
			t.Name != "authproviders" {
			return t, true
		}
	}
	return Type{}, false
}

const federationAPI = "federation/v1"

// Cluster names another cluster, for people and for tools that look at several (federation/v1 Cluster).
type Cluster struct {
	Meta    `json:"metadata,omitempty" pb:"1"`
	APIURLs []string       `json:"api_urls" pb:"2"`
	Extra   tagproto.Extra `json:"-"`
}

// Validate returns what is wrong with the cluster.
func (c *Cluster) Validate() error {
	if err := named("cluster", c.Name); err != nil {
		return err
	}
	if len(c.APIURLs) == 0 {
		return errors.New("api_urls must be set")
	}
	for _, one := range c.APIURLs {
		if u, err := url.Parse(one); err != nil || u.Host == "" || u.User != nil ||
			u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("api_urls: %q is not an http:// or https:// address", one)
		}
	}
	return nil
}

// CopyType is the type of Copy.
const CopyType = "copies"

// Copy says that an object came from another cluster, and goes when it goes there. Its name is CopyName's.
type Copy struct {
	Meta       `pb:"1"`
	Replicator string         `pb:"2"`
	Origin     string         `pb:"3"` // the ID of the cluster that it came from
	Extra      tagproto.Extra `json:"-"`
}

// Validate implements Object: nobody but the plane itself writes one.
func (c *Copy) Validate() error { return nil }

// CopyName is the name of an object's Copy. Names of types and namespaces hold no slash.
func CopyName(typ, namespace, name string) string { return typ + "/" + namespace + "/" + name }

// Of returns what the copy is of.
func (c *Copy) Of() (typ, namespace, name string) {
	typ, rest, _ := strings.Cut(c.Name, "/")
	namespace, name, _ = strings.Cut(rest, "/")
	return typ, namespace, name
}
