package engine

import "corbel.dev/corbel/secrets"

// Route is one of an engine's paths, for descriptions of the API and for tests that walk all of it.
type Route struct {
	Path string // "{name}" stands for what a caller chooses
	Ops  []secrets.Operation
	Open bool // needs no token
}

// Router is an Engine that lists its paths.
type Router interface {
	Routes() []Route
}
