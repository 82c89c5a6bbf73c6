package session

import (
	"errors"
	"strings"
	"unicode/utf8"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"google.golang.org/protobuf/encoding/protowire"
)

// Held is a resource that a reconnecting client says it has.
type Held struct{ Name, Version string }

// Node is who the client says it is. Only the first request of a stream needs to say it.
type Node struct {
	ID, Cluster string
	// Name, Namespace and Partition are the metadata node_name, namespace and partition.
	Name, Namespace, Partition string
	// Agent is the program's name, "envoy"; Major, Minor and Patch its version when it gave one.
	Agent               string
	Major, Minor, Patch uint32
	HasVersion          bool
}

// Request is a decoded discovery request of either variant. It is reused from
// request to request: Decode clears it first. Its strings are copies.
type Request struct {
	Type mesh.Type
	// Known is whether the type's URL is one of mesh's; others are not answered.
	Known bool
	// Nonce is the response's that this one answers, 0 for none. A nonce that is not one of ours is unknownNonce.
	Nonce uint32
	// Failed is set when the client refused; Error holds the start of its words.
	Failed bool
	Error  string
	// Subscribe holds all names of a state-of-the-world request.
	Subscribe, Unsubscribe []string
	Initial                []Held
}

const unknownNonce = ^uint32(0)

func (r *Request) reset() {
	clear(r.Subscribe)
	clear(r.Unsubscribe)
	clear(r.Initial)
	*r = Request{Subscribe: r.Subscribe[:0], Unsubscribe: r.Unsubscribe[:0], Initial: r.Initial[:0]}
}

var errMalformed = errors.New("the discovery request is not a well-formed message")

// walk calls f for each field of a message. f gets the raw value: the content of
// length-delimited fields, or the number.
func walk(b []byte, f func(num protowire.Number, typ protowire.Type, content []byte, value uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var content []byte
		var value uint64
		switch typ {
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := f(num, typ, content, value); err != nil {
			return err
		}
	}
	return nil
}

// DecodeNode reads of a stream's first request who the client is, and nothing else.
func DecodeNode(b []byte, world bool) (*Node, error) {
	node := &Node{}
	at := protowire.Number(1)
	if world {
		at = 2
	}
	err := walk(b, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		if num == at && typ == protowire.BytesType {
			return node.decode(content)
		}
		return nil
	})
	if err != nil && errkind.Of(err) == errkind.Internal {
		err = errkind.E(errkind.Invalid, "discovery request", err)
	}
	return node, err
}

// Decode reads a DeltaDiscoveryRequest, or with world a DiscoveryRequest. The
// node is not read: clients may repeat it in each request.
func (r *Request) Decode(b []byte, world bool) error {
	r.reset()
	err := walk(b, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		if typ != protowire.BytesType {
			return nil
		}
		if world {
			return r.worldField(num, content)
		}
		return r.deltaField(num, content)
	})
	if err != nil && errkind.Of(err) == errkind.Internal {
		return errkind.E(errkind.Invalid, "discovery request", err)
	}
	return err
}

func (r *Request) deltaField(num protowire.Number, b []byte) (err error) {
	switch num {
	case 2:
		r.Type, r.Known = typeOf(b)
	case 3:
		r.Subscribe, err = appendName(r.Subscribe, b)
	case 4:
		r.Unsubscribe, err = appendName(r.Unsubscribe, b)
	case 5:
		return r.held(b)
	case 6:
		r.Nonce = parseNonce(b)
	case 7:
		return r.failure(b)
	}
	return err
}

func (r *Request) worldField(num protowire.Number, b []byte) (err error) {
	switch num {
	case 3:
		r.Subscribe, err = appendName(r.Subscribe, b)
	case 4:
		r.Type, r.Known = typeOf(b)
	case 5:
		r.Nonce = parseNonce(b)
	case 6:
		return r.failure(b)
	}
	return err
}

// typeOf is mesh.TypeOf without making a string of b.
func typeOf(b []byte) (mesh.Type, bool) {
	for _, t := range mesh.Every {
		if t.URL() == string(b) {
			return t, true
		}
	}
	return 0, false
}

func appendName(names []string, b []byte) ([]string, error) {
	switch {
	case len(names) >= maxNames:
		return names, errkind.Errorf(errkind.Invalid, "a request names more than %d resources", maxNames)
	case len(b) > maxNameBytes:
		return names, errkind.Errorf(errkind.Invalid, "a resource's name is longer than %d bytes", maxNameBytes)
	case !utf8.Valid(b):
		return names, errkind.New(errkind.Invalid, "a resource's name is not UTF-8")
	}
	return append(names, string(b)), nil
}

func (r *Request) held(b []byte) error {
	if len(r.Initial) >= maxNames {
		return errkind.Errorf(errkind.Invalid, "a request names more than %d initial versions", maxNames)
	}
	var h Held
	err := walk(b, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		if typ == protowire.BytesType && len(content) > maxNameBytes {
			return errkind.Errorf(errkind.Invalid, "an initial version is longer than %d bytes", maxNameBytes)
		}
		switch num {
		case 1:
			h.Name = string(content)
		case 2:
			h.Version = string(content)
		}
		return nil
	})
	r.Initial = append(r.Initial, h)
	return err
}

// failure reads a google.rpc.Status. Its presence is the refusal, whatever it holds.
func (r *Request) failure(b []byte) error {
	r.Failed, r.Error = true, ""
	err := walk(b, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		if num == 2 && typ == protowire.BytesType {
			r.Error = cutText(content)
		}
		return nil
	})
	if r.Error == "" {
		r.Error = "no reason given"
	}
	return err
}

func cutText(b []byte) string {
	if len(b) <= maxErrorText {
		return strings.ToValidUTF8(string(b), "")
	}
	return strings.ToValidUTF8(string(b[:maxErrorText]), "") + " ..."
}

// parseNonce reads what appendNonce wrote.
func parseNonce(b []byte) uint32 {
	if len(b) == 0 {
		return 0
	}
	if len(b) > 8 {
		return unknownNonce
	}
	var n uint32
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint32(c-'a'+10)
		default:
			return unknownNonce
		}
	}
	if n == 0 {
		return unknownNonce
	}
	return n
}

func (n *Node) decode(b []byte) error {
	return walk(b, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		if typ != protowire.BytesType {
			return nil
		}
		if len(content) > maxNameBytes && num != 3 && num != 8 {
			return nil // extensions and the like
		}
		switch num {
		case 1:
			n.ID = string(content)
		case 2:
			n.Cluster = string(content)
		case 3:
			return walk(content, n.metadata)
		case 6:
			n.Agent = string(content)
		case 8:
			return walk(content, n.buildVersion)
		}
		return nil
	})
}

// metadata reads an entry of a google.protobuf.Struct.
func (n *Node) metadata(num protowire.Number, typ protowire.Type, entry []byte, _ uint64) error {
	if num != 1 || typ != protowire.BytesType {
		return nil
	}
	var key, text []byte
	err := walk(entry, func(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
		switch {
		case typ != protowire.BytesType:
		case num == 1:
			key = content
		case num == 2:
			return walk(content, func(num protowire.Number, typ protowire.Type, value []byte, _ uint64) error {
				if num == 3 && typ == protowire.BytesType && len(value) <= maxNameBytes {
					text = value
				}
				return nil
			})
		}
		return nil
	})
	switch string(key) {
	case "node_name":
		n.Name = string(text)
	case "namespace":
		n.Namespace = string(text)
	case "partition":
		n.Partition = string(text)
	}
	return err
}

func (n *Node) buildVersion(num protowire.Number, typ protowire.Type, content []byte, _ uint64) error {
	if num != 1 || typ != protowire.BytesType {
		return nil
	}
	n.HasVersion = true
	return walk(content, func(num protowire.Number, typ protowire.Type, _ []byte, value uint64) error {
		if typ != protowire.VarintType {
			return nil
		}
		switch num {
		case 1:
			n.Major = uint32(value)
		case 2:
			n.Minor = uint32(value)
		case 3:
			n.Patch = uint32(value)
		}
		return nil
	})
}
