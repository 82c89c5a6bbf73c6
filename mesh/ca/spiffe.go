package ca

import (
	"net/url"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// IDKind is what a SPIFFE id names.
type IDKind uint8

// The kinds.
const (
	ServiceID     IDKind = iota + 1 // Name is the service
	AgentID                         // Name is the node
	ServerID                        // every server of a datacenter
	MeshGatewayID                   // every mesh gateway of a datacenter
	SigningID                       // an authority itself
)

// ID is what a certificate proves.
type ID struct {
	Kind        IDKind
	TrustDomain string
	Datacenter  string
	Name        string
}

// URI is the id as the certificate's one URI name.
func (id ID) URI() *url.URL {
	u := &url.URL{Scheme: "spiffe", Host: id.TrustDomain}
	dc, name := "/dc/"+url.PathEscape(id.Datacenter), url.PathEscape(id.Name)
	var path string
	switch id.Kind {
	case ServiceID:
		path = "/ns/default" + dc + "/svc/" + name
	case AgentID:
		path = "/agent/client" + dc + "/id/" + name
	case ServerID:
		path = "/agent/server" + dc
	case MeshGatewayID:
		path = "/gateway/mesh" + dc
	case SigningID:
	}
	// Escaped once: the path is given both ways, so that String writes it as it is here.
	u.RawPath = path
	u.Path, _ = url.PathUnescape(path)
	return u
}

// ParseID reads an id; the error is of kind Invalid.
func ParseID(u *url.URL) (ID, error) {
	bad := errkind.New(errkind.Invalid, "the URI "+u.String()+" is not a SPIFFE id of this mesh")
	if u.Scheme != "spiffe" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return ID{}, bad
	}
	id := ID{TrustDomain: u.Host}
	if u.Path == "" {
		id.Kind = SigningID
		return id, nil
	}
	parts := strings.Split(u.EscapedPath(), "/")[1:]
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil || p == "" {
			return ID{}, bad
		}
	}
	is := func(words ...string) bool { // "" matches any
		if len(words) != len(parts) {
			return false
		}
		for i, w := range words {
			if w != "" && w != parts[i] {
				return false
			}
		}
		return true
	}
	switch {
	case is("ns", "default", "dc", "", "svc", ""):
		id.Kind, id.Datacenter, id.Name = ServiceID, parts[3], parts[5]
	case is("agent", "client", "dc", "", "id", ""):
		id.Kind, id.Datacenter, id.Name = AgentID, parts[3], parts[5]
	case is("agent", "server", "dc", ""):
		id.Kind, id.Datacenter = ServerID, parts[3]
	case is("gateway", "mesh", "dc", ""):
		id.Kind, id.Datacenter = MeshGatewayID, parts[3]
	default:
		return ID{}, bad
	}
	return id, nil
}
