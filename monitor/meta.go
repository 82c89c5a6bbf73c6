package monitor

import "corbel.dev/corbel/kit/tagproto"

// Meta names an object (the contract's ObjectMeta).
type Meta struct {
	Name        string            `json:"name,omitempty" pb:"1"`
	Namespace   string            `json:"namespace,omitempty" pb:"2"`
	Labels      map[string]string `json:"labels,omitempty" pb:"3"`
	Annotations map[string]string `json:"annotations,omitempty" pb:"4"`
	CreatedBy   string            `json:"created_by,omitempty" pb:"5"`
	Extra       tagproto.Extra    `json:"-"`
}

// Object is what the configuration of the plane consists of: checks, handlers, roles and so on.
type Object interface {
	// Key returns what names the object among those of its type; namespace is "" where its type is not Scoped.
	Key() (namespace, name string)
	// Validate returns what is wrong with the object, as the contract words it.
	Validate() error
}

// Ref names an object of another type (the contract's ResourceReference).
type Ref struct {
	Name       string         `json:"name" pb:"1"`
	Type       string         `json:"type" pb:"2"`
	APIVersion string         `json:"api_version" pb:"3"`
	Extra      tagproto.Extra `json:"-"`
}

// Secret says which secret of a provider is to be put into which variable.
type Secret struct {
	Name   string         `json:"name,omitempty" pb:"1"`
	Secret string         `json:"secret,omitempty" pb:"2"`
	Extra  tagproto.Extra `json:"-"`
}
