package mesh

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"corbel.dev/corbel/kit/errkind"
)

// Fields of envoy.service.discovery.v3.Resource and of google.protobuf.Any.
const (
	resourceVersion = 1
	resourceAny     = 2
	resourceName    = 3
	anyURL          = 1
	anyValue        = 2
)

// NewResource wraps an encoded message of the type for the wire.
func NewResource(t Type, name, version string, message []byte) *Resource {
	url := t.URL()
	anySize := protowire.SizeTag(anyURL) + protowire.SizeBytes(len(url)) + protowire.SizeTag(anyValue) +
		protowire.SizeBytes(len(message))
	size := protowire.SizeTag(resourceVersion) + protowire.SizeBytes(len(version)) +
		protowire.SizeTag(resourceAny) + protowire.SizeBytes(anySize) + protowire.SizeTag(resourceName) +
		protowire.SizeBytes(len(name))
	b := make([]byte, 0, size)
	b = appendString(b, resourceVersion, version)
	b = protowire.AppendTag(b, resourceAny, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(anySize))
	from := len(b)
	b = appendString(b, anyURL, url)
	b = protowire.AppendTag(b, anyValue, protowire.BytesType)
	b = protowire.AppendBytes(b, message)
	to := len(b)
	b = appendString(b, resourceName, name)
	return &Resource{Type: t, Name: name, Version: version, Body: b, Any: b[from:to:to]}
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

var errDamaged = errkind.New(errkind.Corrupt, "an encoded resource is damaged")

// ReadResource makes a resource of its Body, as another process wrapped it. It
// keeps body; what the message says is not looked at.
func ReadResource(body []byte, changed time.Time) (*Resource, error) {
	r := &Resource{Body: body, Changed: changed}
	known := false
	for rest := body; len(rest) > 0; {
		field, value, n := consume(rest)
		if n <= 0 {
			return nil, errDamaged
		}
		rest = rest[n:]
		switch field {
		case resourceVersion:
			r.Version = string(value)
		case resourceName:
			r.Name = string(value)
		case resourceAny:
			r.Any = value[:len(value):len(value)]
			if url, text, n := consume(value); n > 0 && url == anyURL {
				r.Type, known = TypeOf(string(text))
			}
		}
	}
	if r.Name == "" || r.Version == "" || !known {
		return nil, errDamaged
	}
	return r, nil
}

// consume reads a field that holds bytes; n is not positive when there is none.
func consume(b []byte) (field protowire.Number, value []byte, n int) {
	field, kind, n := protowire.ConsumeTag(b)
	if n <= 0 || kind != protowire.BytesType {
		return 0, nil, -1
	}
	value, m := protowire.ConsumeBytes(b[n:])
	if m < 0 {
		return 0, nil, -1
	}
	return field, value, n + m
}
