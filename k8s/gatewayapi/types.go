package gatewayapi

import "corbel.dev/corbel/k8s"

// Class is a GatewayClass.
type Class struct {
	Metadata k8s.Meta `json:"metadata"`
	Spec     struct {
		ControllerName string `json:"controllerName"`
	} `json:"spec"`
	Status ClassStatus `json:"status"`
}

// Gateway is a Gateway.
type Gateway struct {
	Metadata k8s.Meta `json:"metadata"`
	Spec     struct {
		GatewayClassName string     `json:"gatewayClassName"`
		Listeners        []Listener `json:"listeners"`
	} `json:"spec"`
	Status GatewayStatus `json:"status"`
}

// Listener is one port of a gateway.
type Listener struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"` // HTTP or HTTPS are taken
	TLS      *struct {
		Mode            string `json:"mode"` // "" and Terminate are taken
		CertificateRefs []Ref  `json:"certificateRefs"`
	} `json:"tls"`
	AllowedRoutes struct {
		Namespaces struct {
			From string `json:"from"` // Same (the default), All
		} `json:"namespaces"`
	} `json:"allowedRoutes"`
}

// Ref names another object. Pointers are fields whose absence means something.
type Ref struct {
	Group       *string `json:"group,omitempty"`
	Kind        *string `json:"kind,omitempty"`
	Namespace   *string `json:"namespace,omitempty"`
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName,omitempty"`
	Port        *int    `json:"port,omitempty"`
	Weight      *int    `json:"weight,omitempty"`
}

func or[T any](p *T, d T) T {
	if p == nil {
		return d
	}
	return *p
}

// Route is an HTTPRoute.
type Route struct {
	Metadata k8s.Meta `json:"metadata"`
	Spec     struct {
		ParentRefs []Ref    `json:"parentRefs"`
		Hostnames  []string `json:"hostnames"`
		Rules      []Rule   `json:"rules"`
	} `json:"spec"`
	Status RouteStatus `json:"status"`
}

// Rule is one rule of a route.
type Rule struct {
	Matches     []Match  `json:"matches"`
	Filters     []Filter `json:"filters"`
	BackendRefs []Ref    `json:"backendRefs"`
	Timeouts    *struct {
		Request string `json:"request"`
	} `json:"timeouts"`
}

// Match picks requests.
type Match struct {
	Path        *Value  `json:"path"`
	Headers     []Value `json:"headers"`
	QueryParams []Value `json:"queryParams"`
	Method      string  `json:"method"`
}

// Value is what a part of a request is compared with.
type Value struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Filter changes requests or responses.
type Filter struct {
	Type                   string   `json:"type"`
	RequestHeaderModifier  *Headers `json:"requestHeaderModifier"`
	ResponseHeaderModifier *Headers `json:"responseHeaderModifier"`
	URLRewrite             *struct {
		Hostname string `json:"hostname"`
		Path     *struct {
			Type               string `json:"type"`
			ReplacePrefixMatch string `json:"replacePrefixMatch"`
		} `json:"path"`
	} `json:"urlRewrite"`
}

// Headers changes headers.
type Headers struct {
	Set    []Value  `json:"set"`
	Add    []Value  `json:"add"`
	Remove []string `json:"remove"`
}

// Condition is one statement about an object.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"` // True or False
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
}

// ClassStatus is the status of a class.
type ClassStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// GatewayStatus is the status of a gateway.
type GatewayStatus struct {
	Conditions []Condition      `json:"conditions,omitempty"`
	Listeners  []ListenerStatus `json:"listeners,omitempty"`
}

// ListenerStatus is the status of a listener.
type ListenerStatus struct {
	Name           string      `json:"name"`
	AttachedRoutes int         `json:"attachedRoutes"`
	SupportedKinds []RouteKind `json:"supportedKinds"`
	Conditions     []Condition `json:"conditions"`
}

// RouteKind is a kind of routes.
type RouteKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// RouteStatus is the status of a route.
type RouteStatus struct {
	Parents []ParentStatus `json:"parents"`
}

// ParentStatus is how a route stands to one of its parents.
type ParentStatus struct {
	ParentRef      Ref         `json:"parentRef"`
	ControllerName string      `json:"controllerName"`
	Conditions     []Condition `json:"conditions"`
}
