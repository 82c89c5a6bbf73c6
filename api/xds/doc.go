// Package xds programs Envoy: the aggregated discovery service, in its
// incremental and its state-of-the-world variant, and the gRPC health service.
//
// What a stream is told and when is decided by the pure package session; whose
// resources they are by a Plane, which the node plugs in.
package xds
