package sidecars

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
)

// Kinds of resources, by the places of their type URLs.
const (
	kindSecret = iota
	kindCluster
	kindEndpoints
	kindExtension
	kindListener
	kindRoute
	typeCount
)

var typeURLs = [typeCount]string{
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}

func kindOf[T string | []byte](url T) int {
	for i, known := range typeURLs {
		if string(url) == known {
			return i
		}
	}
	return -1
}

var errShort = errors.New("a message ends inside a field")

// fields walks the fields of an encoded message: number, and bytes of fields
// with a length or the value of the others. A broken message yields number 0 last.
func fields(p []byte) iter.Seq2[int, field] {
	return func(yield func(int, field) bool) {
		for len(p) > 0 {
			key, n := binary.Uvarint(p)
			if n <= 0 {
				yield(0, field{})
				return
			}
			p = p[n:]
			f := field{}
			switch key & 7 {
			case 0:
				f.value, n = binary.Uvarint(p)
			case 1:
				n = 8
			case 2:
				size, m := binary.Uvarint(p)
				if m <= 0 || size > uint64(len(p)-m) {
					yield(0, field{})
					return
				}
				f.bytes, n = p[m:m+int(size)], m+int(size)
			case 5:
				n = 4
			default:
				n = -1
			}
			if n <= 0 || n > len(p) || key>>3 == 0 {
				yield(0, field{})
				return
			}
			p = p[n:]
			if !yield(int(key>>3), f) {
				return
			}
		}
	}
}

type field struct {
	bytes []byte
	value uint64
}

// response is a DeltaDiscoveryResponse, looked through but not decoded.
type response struct {
	kind  int
	url   []byte
	nonce []byte
	body  []byte
}

func readResponse(p []byte) (response, error) {
	r := response{kind: -1, body: p}
	for n, f := range fields(p) {
		switch n {
		case 0:
			return r, errShort
		case 4:
			r.url, r.kind = f.bytes, kindOf(f.bytes)
		case 5:
			r.nonce = f.bytes
		}
	}
	if r.kind < 0 {
		return r, errors.New("a response has an unknown type URL: " + string(r.url))
	}
	return r, nil
}

// resource is one of a response; content is what its Any holds.
type resource struct{ name, version, content []byte }

// resources walks the resources of a response.
func (r response) resources(yield func(resource) bool) {
	for n, f := range fields(r.body) {
		if n != 2 {
			continue
		}
		var v resource
		for n, f := range fields(f.bytes) {
			switch n {
			case 1:
				v.version = f.bytes
			case 2:
				_, v.content = openAny(f.bytes)
			case 3:
				v.name = f.bytes
			}
		}
		if !yield(v) {
			return
		}
	}
}

func openAny(p []byte) (url, content []byte) {
	for n, f := range fields(p) {
		switch n {
		case 1:
			url = f.bytes
		case 2:
			content = f.bytes
		}
	}
	return url, content
}

// references calls found for each resource that a cluster or a listener refers
// to, as an Envoy would ask for it.
func references(kind int, v resource, found func(kind int, name []byte)) {
	switch kind {
	case kindCluster:
		clusterReferences(v, found)
	case kindListener:
		for n, f := range fields(v.content) {
			if n == 3 || n == 25 { // filter_chains, default_filter_chain
				chainReferences(f.bytes, found)
			}
		}
	case kindExtension:
		for n, f := range fields(v.content) {
			if n == 2 {
				anyReferences(f.bytes, found)
			}
		}
	}
}

const clusterTypeEDS = 3

func clusterReferences(v resource, found func(int, []byte)) {
	eds, service := false, v.name
	for n, f := range fields(v.content) {
		switch n {
		case 2:
			eds = f.value == clusterTypeEDS
		case 3: // eds_cluster_config
			for n, f := range fields(f.bytes) {
				if n == 2 && len(f.bytes) > 0 {
					service = f.bytes
				}
			}
		case 24:
			socketReferences(f.bytes, found)
		}
	}
	if eds {
		found(kindEndpoints, service)
	}
}

func chainReferences(chain []byte, found func(int, []byte)) {
	for n, f := range fields(chain) {
		switch n {
		case 3:
			filterReferences(f.bytes, found)
		case 6:
			socketReferences(f.bytes, found)
		}
	}
}

// filterReferences reads a network or an HTTP filter; both have the same shape.
func filterReferences(filter []byte, found func(int, []byte)) {
	var name []byte
	for n, f := range fields(filter) {
		switch n {
		case 1:
			name = f.bytes
		case 4:
			anyReferences(f.bytes, found)
		case 5: // config_discovery: the filter's own name is the resource's
			found(kindExtension, name)
		}
	}
}

// socketReferences reads a transport socket.
func socketReferences(socket []byte, found func(int, []byte)) {
	for n, f := range fields(socket) {
		if n == 3 {
			anyReferences(f.bytes, found)
		}
	}
}

var (
	suffixConnectionManager = []byte(".HttpConnectionManager")
	suffixUpstreamTLS       = []byte(".UpstreamTlsContext")
	suffixDownstreamTLS     = []byte(".DownstreamTlsContext")
)

func anyReferences(p []byte, found func(int, []byte)) {
	url, content := openAny(p)
	switch {
	case bytes.HasSuffix(url, suffixConnectionManager):
		for n, f := range fields(content) {
			switch n {
			case 3: // rds
				for n, f := range fields(f.bytes) {
					if n == 2 {
						found(kindRoute, f.bytes)
					}
				}
			case 5:
				filterReferences(f.bytes, found)
			}
		}
	case bytes.HasSuffix(url, suffixUpstreamTLS), bytes.HasSuffix(url, suffixDownstreamTLS):
		for n, f := range fields(content) {
			if n == 1 {
				tlsReferences(f.bytes, found)
			}
		}
	}
}

func tlsReferences(common []byte, found func(int, []byte)) {
	secret := func(config []byte) {
		for n, f := range fields(config) {
			if n == 1 {
				found(kindSecret, f.bytes)
			}
		}
	}
	for n, f := range fields(common) {
		switch n {
		case 6, 7: // tls_certificate_sds_secret_configs, validation_context_sds_secret_config
			secret(f.bytes)
		case 8: // combined_validation_context
			for n, f := range fields(f.bytes) {
				if n == 2 {
					secret(f.bytes)
				}
			}
		}
	}
}

func appendBytes[T string | []byte](b []byte, number int, v T) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// appendRequest encodes a DeltaDiscoveryRequest. A nonce makes it an acknowledgement.
func appendRequest(b []byte, node []byte, kind int, subscribe []string, nonce []byte) []byte {
	if len(node) > 0 {
		b = appendBytes(b, 1, node)
	}
	b = appendBytes(b, 2, typeURLs[kind])
	for _, name := range subscribe {
		b = appendBytes(b, 3, name)
	}
	if len(nonce) > 0 {
		b = appendBytes(b, 6, nonce)
	}
	return b
}

// nodeMessage encodes the config.core.v3.Node that a bootstrap of ours gives an Envoy:
// id, cluster, metadata with the node's name, and the version that it says it is.
func nodeMessage(id, node string) []byte {
	entry := appendBytes(nil, 1, "node_name")
	entry = appendBytes(entry, 2, appendBytes(nil, 3, node)) // Value.string_value
	b := appendBytes(nil, 1, id)
	b = appendBytes(b, 2, id)
	b = appendBytes(b, 3, appendBytes(nil, 1, entry)) // Struct.fields
	b = appendBytes(b, 6, "envoy")
	version := appendBytes(nil, 1, []byte{1 << 3, 1, 2 << 3, 40}) // SemanticVersion 1.40.0
	return appendBytes(b, 8, version)                             // user_agent_build_version
}
