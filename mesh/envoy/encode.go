package envoy

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
		return nil, fmt.Errorf("%s %q: %w", strings.TrimSuffix(t.String(), "s"), name, err)
	}
	value, err := deterministic.Marshal(m)
	if err != nil {
		return nil, errkind.Errorf(errkind.Internal, "encode %s %q: %w", t, name, err)
	}
	return seal(t, name, value), nil
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

// packer packs messages into messages and keeps the first error, so that
// builders read as the shapes that they build.
type packer struct{ err error }

// any wraps a message that is checked.
func (p *packer) any(m proto.Message) *anypb.Any {
	p.keep(check(m))
	b, err := deterministic.Marshal(m)
	p.keep(err)
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

func (p *packer) keep(err error) {
	if p.err == nil && err != nil {
		p.err = err
	}
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func u32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }

func truth(v bool) *wrapperspb.BoolValue { return wrapperspb.Bool(v) }
