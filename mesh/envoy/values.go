package envoy

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

type message = proto.Message

// packer packs messages into messages and keeps the first error, so that
// builders read as the shapes that they build.
type packer struct{ err error }

// any wraps a message that is checked.
func (p *packer) any(m message) *anypb.Any {
	p.keep(check(m))
	b, err := deterministic.Marshal(m)
	p.keep(err)
	return &anypb.Any{TypeUrl: urlOf(m), Value: b}
}

// urlOf is the name of a message's type within others.
func urlOf(m message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

func (p *packer) keep(err error) {
	if p.err == nil && err != nil {
		p.err = err
	}
}

// encode makes the resource, unless something in it was refused.
func (p *packer) encode(t mesh.Type, name string, m message) (*mesh.Resource, error) {
	if p.err != nil {
		return nil, named(t, name, p.err)
	}
	return encode(t, name, m)
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func u32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }

func truth(v bool) *wrapperspb.BoolValue { return wrapperspb.Bool(v) }

func percent(v float64) *typev3.Percent { return &typev3.Percent{Value: v} }

func failoverPrefix(n int) string { return "failover-target~" + strconv.Itoa(n) + "~" }

// addressOf is a socket's address or, with a path, a pipe; the error names the field that is wrong.
func addressOf(field, address, portField string, port int, path string, mode uint32) (*corev3.Address, error) {
	if path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}, nil
	}
	if address == "" {
		return nil, errkind.Errorf(errkind.Invalid, "%s is required", field)
	}
	if port < 1 || port > 65535 {
		return nil, errkind.Errorf(errkind.Invalid, "%s %d: must be 1 to 65535", portField, port)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: address,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}, nil
}

// bindAddress is where a listener listens: an IP address, not a name.
func bindAddress(field, address, portField string, port int, path string, mode uint32) (*corev3.Address, error) {
	if path == "" {
		if _, err := netip.ParseAddr(address); err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "%s %q: a proxy can listen on an IP address only", field, address)
		}
	}
	return addressOf(field, address, portField, port, path, mode)
}

// fromJSON reads a message that an operator wrote in place of ours, with or
// without the name of its type at the top.
func fromJSON(field, text string, into message) error {
	var top struct {
		Type string `json:"@type"`
	}
	err := json.Unmarshal([]byte(text), &top)
	if err == nil && top.Type == "" {
		err = protojson.Unmarshal([]byte(text), into)
	} else if err == nil {
		var wrapped anypb.Any
		if err = protojson.Unmarshal([]byte(text), &wrapped); err == nil {
			err = wrapped.UnmarshalTo(into)
		}
	}
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "%s: %w", field, err)
	}
	return nil
}
