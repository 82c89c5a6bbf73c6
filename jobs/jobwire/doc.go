// Package jobwire has the shapes of the Nomad API: what clients send and get as JSON, and what a job file
// says (package spec reads it into the same structs).
//
// One declaration of a field says all about it. Its Go name is the name in JSON. The tag hcl is its
// name in a job file when that is not the Go name in snake case ("-": job files do not have it; ",label":
// it is the block's label). The tag def is the value that Canonicalize gives a nil pointer ("-": it stays
// nil; "made": an object of defaults; no tag: the zero value of a scalar, and nil of an object).
//
// A pointer is nil when the client left the field out or sent null; a slice or map likewise. Durations are
// nanoseconds in JSON. Decode takes "30s" too.
//
// ToJob and FromJob lead to the core's types and back. What the core does not read travels along encoded
// (Parts, Settings, Rest), so that FromJob(ToJob(j)) is j for each canonical j.
//
// The package is pure. Objects belong to their holder: Canonicalize changes them.
package jobwire
