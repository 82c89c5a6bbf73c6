// Package k8s has the objects of a Kubernetes cluster, as far as Corbel reads and writes them, and the names of
// annotations that consul-k8s gave them.
//
// Only the fields that something here decides by are declared; what else an object holds is passed over. Objects are
// values: who reads one from a mirror must not change it. The package does nothing: it decodes within bounds and
// answers questions about what it decoded.
package k8s

import (
	"encoding/json"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/errkind"
)

// MaxObjectBytes bounds one object. The API server's store takes 1.5 MiB at most; JSON is larger than what is stored.
const MaxObjectBytes = 8 << 20

// AnnotationPrefix is before the name of each annotation that means something here.
const AnnotationPrefix = "consul.hashicorp.com/"

// The annotations of services.
const (
	ServiceSync   = AnnotationPrefix + "service-sync"
	ServiceName   = AnnotationPrefix + "service-name"
	ServicePort   = AnnotationPrefix + "service-port"
	ServiceTags   = AnnotationPrefix + "service-tags"
	ServiceMeta   = AnnotationPrefix + "service-meta-" // a key follows
	ServiceWeight = AnnotationPrefix + "service-weight"
)

// Meta is what each object says of itself.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
}

// Key is the namespace and the name.
func (m *Meta) Key() string { return m.Namespace + "/" + m.Name }

// Object is anything with metadata.
type Object struct {
	Metadata Meta `json:"metadata"`
}

// The types of a service.
const (
	ClusterIP    = "ClusterIP"
	NodePort     = "NodePort"
	LoadBalancer = "LoadBalancer"
	ExternalName = "ExternalName"
)

// Service is a v1 Service.
type Service struct {
	APIVersion string        `json:"apiVersion,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Metadata   Meta          `json:"metadata"`
	Spec       ServiceSpec   `json:"spec"`
	Status     ServiceStatus `json:"status,omitzero"`
}

// ServiceSpec is what a service is to be.
type ServiceSpec struct {
	Type         string       `json:"type,omitempty"`
	ExternalName string       `json:"externalName,omitempty"`
	ExternalIPs  []string     `json:"externalIPs,omitempty"`
	IPFamilies   []string     `json:"ipFamilies,omitempty"`
	Ports        []PortOfSpec `json:"ports,omitempty"`
}

// PortOfSpec is a port of a service.
type PortOfSpec struct {
	Name     string `json:"name,omitempty"`
	Port     int    `json:"port"`
	NodePort int    `json:"nodePort,omitempty"`
}

// ServiceStatus is what a service has got.
type ServiceStatus struct {
	LoadBalancer struct {
		Ingress []struct {
			IP       string `json:"ip,omitempty"`
			Hostname string `json:"hostname,omitempty"`
		} `json:"ingress,omitempty"`
	} `json:"loadBalancer,omitzero"`
}

// ServiceOfSlice is the label by which a slice names its service.
const ServiceOfSlice = "kubernetes.io/service-name"

// EndpointSlice is a discovery.k8s.io/v1 EndpointSlice.
type EndpointSlice struct {
	Metadata    Meta       `json:"metadata"`
	AddressType string     `json:"addressType"` // IPv4, IPv6 or FQDN
	Endpoints   []Endpoint `json:"endpoints"`
	Ports       []struct {
		Name *string `json:"name"`
		Port *int    `json:"port"`
	} `json:"ports"`
}

// Endpoint is one pod, or whatever stands behind a service.
type Endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready *bool `json:"ready,omitempty"`
	} `json:"conditions"`
	NodeName  string `json:"nodeName,omitempty"`
	Zone      string `json:"zone,omitempty"`
	TargetRef *struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"targetRef,omitempty"`
}

// Ready is true where the API says nothing: so its documentation has it.
func (e *Endpoint) Ready() bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// Node is a v1 Node.
type Node struct {
	Metadata Meta `json:"metadata"`
	Status   struct {
		Addresses []struct {
			Type    string `json:"type"` // InternalIP, ExternalIP, Hostname
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// Address is the node's first address of a type, or "".
func (n *Node) Address(kind string) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return ""
}

// Bool reads an annotation that is true or false. Without it the answer is def.
func Bool(annotations map[string]string, name string, def bool) (bool, error) {
	text, ok := annotations[name]
	if !ok {
		return def, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, errkind.Errorf(errkind.Invalid, "annotation %s is %q; it must be true or false", name, text)
	}
	return v, nil
}

// List splits an annotation at its commas; \, is a comma of an item.
func List(text string) (list []string) {
	text = strings.ReplaceAll(text, `\,`, "\x00")
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(strings.ReplaceAll(item, "\x00", ",")); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// Decode reads one object into a type of this package.
func Decode(text []byte, into any) error {
	if len(text) > MaxObjectBytes {
		return errkind.Errorf(errkind.TooLarge, "an object of %d bytes; at most %d are read", len(text), MaxObjectBytes)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errkind.E(errkind.Invalid, "read object", err)
	}
	return nil
}
