package sensu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/kit/errkind"
)

// Resource is an object as files have it.
type Resource struct {
	Type       string         `json:"type"`
	APIVersion string         `json:"api_version"`
	Metadata   map[string]any `json:"metadata,omitempty"`
	Spec       map[string]any `json:"spec"`
}

// ReadResources reads YAML documents, or JSON objects one behind the other. Errors tell which of them is wrong, and
// where.
func ReadResources(text []byte) (out []Resource, err error) {
	add := func(r Resource) error {
		if r.Type == "" {
			return fmt.Errorf("object %d: type is missing", len(out)+1)
		}
		if r.APIVersion == "" {
			r.APIVersion = "core/v2"
		}
		if r.Spec == nil {
			r.Spec = map[string]any{}
		}
		out = append(out, r)
		return nil
	}
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		for {
			var r Resource
			if err := d.Decode(&r); errors.Is(err, io.EOF) {
				return out, nil
			} else if err != nil {
				return nil, errkind.E(errkind.Invalid, fmt.Sprintf("object %d", len(out)+1), err)
			}
			if err := add(r); err != nil {
				return nil, err
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, errkind.E(errkind.Invalid, fmt.Sprintf("object %d", len(out)+1), err)
		}
		if v == nil {
			continue // a document of comments
		}
		b, err := json.Marshal(v) // maps with keys that are no text cannot be an object's
		var r Resource
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			err = d.Decode(&r)
		}
		if err != nil {
			return nil, errkind.E(errkind.Invalid, fmt.Sprintf("object %d", len(out)+1), err)
		}
		if err := add(r); err != nil {
			return nil, err
		}
	}
}

// place is where objects of a type are.
type place struct {
	path   string // below /api/
	scoped bool
	name   func(*Resource) string // nil: metadata.name
}

func specName(field string) func(*Resource) string {
	return func(r *Resource) string { return text(r.Spec[field]) }
}

var places = map[string]place{
	"core/v2.APIKey":                    {path: "core/v2/apikeys"},
	"core/v2.Asset":                     {path: "core/v2/assets", scoped: true},
	"core/v2.Check":                     {path: "core/v2/checks", scoped: true},
	"core/v2.CheckConfig":               {path: "core/v2/checks", scoped: true},
	"core/v2.ClusterRole":               {path: "core/v2/clusterroles"},
	"core/v2.ClusterRoleBinding":        {path: "core/v2/clusterrolebindings"},
	"core/v2.Entity":                    {path: "core/v2/entities", scoped: true},
	"core/v2.Event":                     {path: "core/v2/events", scoped: true, name: eventName},
	"core/v2.EventFilter":               {path: "core/v2/filters", scoped: true},
	"core/v2.Handler":                   {path: "core/v2/handlers", scoped: true},
	"core/v2.Hook":                      {path: "core/v2/hooks", scoped: true},
	"core/v2.HookConfig":                {path: "core/v2/hooks", scoped: true},
	"core/v2.Mutator":                   {path: "core/v2/mutators", scoped: true},
	"core/v2.Namespace":                 {path: "core/v2/namespaces", name: specName("name")},
	"core/v2.Pipeline":                  {path: "core/v2/pipelines", scoped: true},
	"core/v2.Role":                      {path: "core/v2/roles", scoped: true},
	"core/v2.RoleBinding":               {path: "core/v2/rolebindings", scoped: true},
	"core/v2.Silenced":                  {path: "core/v2/silenced", scoped: true, name: silenceName},
	"core/v2.TessenConfig":              {path: "core/v2/tessen", name: func(*Resource) string { return "" }},
	"core/v2.User":                      {path: "core/v2/users", name: specName("username")},
	"core/v3.EntityConfig":              {path: "core/v3/entity-configs", scoped: true},
	"authentication/v2.ad":              {path: "enterprise/authentication/v2/authproviders"},
	"authentication/v2.ldap":            {path: "enterprise/authentication/v2/authproviders"},
	"authentication/v2.oidc":            {path: "enterprise/authentication/v2/authproviders"},
	"bsm/v1.RuleTemplate":               {path: "enterprise/bsm/v1/rule-templates", scoped: true},
	"bsm/v1.ServiceComponent":           {path: "enterprise/bsm/v1/service-components", scoped: true},
	"federation/v1.Cluster":             {path: "enterprise/federation/v1/clusters"},
	"federation/v1.EtcdReplicator":      {path: "enterprise/federation/v1/etcd-replicators"},
	"pipeline/v1.TCPStreamHandler":      {path: "enterprise/pipeline/v1/tcp-stream-handlers", scoped: true},
	"searches/v1.Search":                {path: "enterprise/searches/v1/search", scoped: true},
	"secrets/v1.Env":                    {path: "enterprise/secrets/v1/providers"},
	"secrets/v1.VaultProvider":          {path: "enterprise/secrets/v1/providers"},
	"secrets/v1.CyberArkConjurProvider": {path: "enterprise/secrets/v1/providers"},
	"secrets/v1.Secret":                 {path: "enterprise/secrets/v1/secrets", scoped: true},
	"store/v1.PostgresConfig":           {path: "enterprise/store/v1/provider"},
	"web/v1.GlobalConfig":               {path: "enterprise/web/v1/config"},
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func silenceName(r *Resource) string {
	return SilenceName(text(r.Spec["subscription"]), text(r.Spec["check"]))
}

// SilenceName is the name of the silence of a subscription and a check, either of which may be empty.
func SilenceName(subscription, check string) string {
	for _, half := range []*string{&subscription, &check} {
		if *half == "" {
			*half = "*"
		}
	}
	return subscription + ":" + check
}

func eventName(r *Resource) string {
	name := func(part string) string {
		object, _ := r.Spec[part].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		return text(meta["name"])
	}
	return name("entity") + "/" + name("check")
}

// String is the type and the name, for messages.
func (r *Resource) String() string {
	_, name, _ := r.place("")
	return r.APIVersion + "." + r.Type + " " + name
}

func (r *Resource) place(namespace string) (path, name string, err error) {
	p, ok := places[r.APIVersion+"."+r.Type]
	if !ok {
		return "", "", errkind.Errorf(errkind.Invalid, "type %s of %s is not known", r.Type, r.APIVersion)
	}
	name = text(r.Metadata["name"])
	if p.name != nil {
		name = p.name(r)
	}
	if name == "" && p.path != "core/v2/tessen" {
		return "", "", errkind.Errorf(errkind.Invalid, "an object of type %s has no name", r.Type)
	}
	if own := text(r.Metadata["namespace"]); own != "" {
		namespace = own
	}
	return ObjectPath(p.path, p.scoped, namespace, name), name, nil
}

// ObjectPath is the path of an object, or with an empty name that of their list. api is its API and its type:
// core/v2/checks. An event's name has two parts.
func ObjectPath(api string, scoped bool, namespace, name string) string {
	at := strings.LastIndexByte(api, '/')
	path := "/api/" + api[:at]
	if scoped && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += api[at:]
	if name == "" {
		return path
	}
	if api == "core/v2/events" {
		entity, check, _ := strings.Cut(name, "/")
		return path + "/" + url.PathEscape(entity) + "/" + url.PathEscape(check)
	}
	return path + "/" + url.PathEscape(name)
}

// Request is what puts the resource where it belongs: its path, and the body. namespace is for such as name none.
func (r *Resource) Request(namespace string) (path string, body []byte, err error) {
	if path, _, err = r.place(namespace); err != nil {
		return "", nil, err
	}
	if r.APIVersion != "core/v2" {
		body, err = json.Marshal(r)
		return path, body, err
	}
	plain := map[string]any{}
	for name, v := range r.Spec {
		plain[name] = v
	}
	if len(r.Metadata) > 0 && r.Type != "Namespace" && r.Type != "User" {
		plain["metadata"] = r.Metadata
	}
	body, err = json.Marshal(plain)
	return path, body, err
}
