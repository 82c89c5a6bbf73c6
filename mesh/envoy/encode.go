package envoy

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// deterministic: two builds of one view give the same bytes, so the same version.
var deterministic = proto.MarshalOptions{Deterministic: true}

// versionBytes of the SHA-256 are kept: enough that nobody finds two contents
// with one version, which would keep the second from being sent.
const versionBytes = 15

// encode makes the resource of a message. It refuses what Envoy would refuse.
func encode(t mesh.Type, name string, m proto.Message) (*mesh.Resource, error) {
	if err := check(m); err != nil {
		return nil, named(t, name, err)
	}
	value, err := deterministic.Marshal(m)
	if err != nil {
		return nil, errkind.Errorf(errkind.Internal, "encode %s %q: %w", t, name, err)
	}
	return seal(t, name, value), nil
}

// named says which resource an error is about.
func named(t mesh.Type, name string, err error) error {
	return fmt.Errorf("%s %q: %w", strings.TrimSuffix(t.String(), "s"), name, err)
}

// seal wraps an encoded message.
func seal(t mesh.Type, name string, value []byte) *mesh.Resource {
	sum := sha256.Sum256(value)
	return mesh.NewResource(t, name, base64.RawURLEncoding.EncodeToString(sum[:versionBytes]), value)
}

// check applies the rules of Envoy's definitions.
func check(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return errkind.E(errkind.Invalid, "", err)
		}
	}
	return nil
}
