package member

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"github.com/hashicorp/memberlist"
)

// Metadata of a member, at most metaMaxBytes: version (1 byte), epoch, then per tag
// a key and a value. Well-known keys take one byte, UUIDs as values sixteen:
// metadata rides on every gossip message about a member.
//
//	tag:   code (0: own key follows as a string) then the value
//	value: uint n; n odd: a UUID in 16 bytes; else n/2 bytes of text
const metaVersion = 1

const metaMaxBytes = memberlist.MetaMaxSize

const maxNameBytes = 128

// knownKeys get the code of their place, beginning with 1. Append only: the codes are on the wire.
var knownKeys = [...]string{"role", "dc", "id", "port", "vsn", "vsn_min", "vsn_max", "build", "raft_vsn", "expect",
	"bootstrap",
	"acls", "segment", "wan_join_port", "grpc_port", "grpc_tls_port", "use_tls", "ap", "nonvoter", "read_replica",
	"ft_fs", "ft_si"}

var codeOf = func() map[string]uint64 {
	m := make(map[string]uint64, len(knownKeys))
	for i, key := range knownKeys {
		m[key] = uint64(i + 1)
	}
	return m
}()

// encodeMeta is deterministic: memberlist compares metadata to see changes.
func encodeMeta(epoch uint64, tags map[string]string) ([]byte, error) {
	b := pack.Uint([]byte{metaVersion}, epoch)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if code := codeOf[key]; code != 0 {
			b = pack.Uint(b, code)
		} else {
			b = pack.String(pack.Uint(b, 0), key)
		}
		value := tags[key]
		if id, ok := parseUUID(value); ok {
			b = append(pack.Uint(b, 1), id[:]...)
		} else {
			b = append(pack.Uint(b, uint64(len(value))*2), value...)
		}
	}
	if len(b) > metaMaxBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "gossip: tags take %d bytes, at most %d are allowed", len(b),
			metaMaxBytes)
	}
	return b, nil
}

var errMeta = errors.New("gossip: malformed metadata")

// decodeMeta reads what another member sent. Metadata of a newer version is refused.
func decodeMeta(b []byte) (epoch uint64, tags map[string]string, err error) {
	if len(b) == 0 || len(b) > metaMaxBytes {
		return 0, nil, errMeta
	}
	if b[0] != metaVersion {
		return 0, nil, fmt.Errorf("gossip: metadata of version %d", b[0])
	}
	r := reader{b[1:]}
	epoch, ok := r.uint()
	if !ok {
		return 0, nil, errMeta
	}
	tags = map[string]string{}
	for len(r.b) > 0 {
		key, ok := r.key()
		if !ok {
			return 0, nil, errMeta
		}
		value, ok := r.value()
		if _, twice := tags[key]; !ok || twice {
			return 0, nil, errMeta
		}
		tags[key] = value
	}
	return epoch, tags, nil
}

// reader takes fields off metadata; unlike pack.Reader it tells the end from zero.
type reader struct{ b []byte }

func (r *reader) uint() (uint64, bool) {
	if len(r.b) == 0 {
		return 0, false
	}
	p := pack.Read(r.b)
	v := p.Uint()
	if p.Err() != nil {
		return 0, false
	}
	r.b = r.b[len(r.b)-p.Len():]
	return v, true
}

func (r *reader) text(n uint64) (string, bool) {
	if n > uint64(len(r.b)) {
		return "", false
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s, true
}

func (r *reader) key() (string, bool) {
	code, ok := r.uint()
	switch {
	case !ok:
		return "", false
	case code == 0:
		n, ok := r.uint()
		if !ok {
			return "", false
		}
		return r.text(n)
	case code <= uint64(len(knownKeys)):
		return knownKeys[code-1], true
	}
	return fmt.Sprintf("tag%d", code), true // of a newer version
}

func (r *reader) value() (string, bool) {
	n, ok := r.uint()
	if !ok {
		return "", false
	}
	if n&1 == 0 {
		return r.text(n / 2)
	}
	raw, ok := r.text(16)
	if !ok {
		return "", false
	}
	return formatUUID([16]byte([]byte(raw))), true
}

// parseUUID takes the lower-case form only, so that it comes back as it was.
func parseUUID(s string) (id [16]byte, ok bool) {
	if len(s) != 36 {
		return id, false
	}
	digits := make([]byte, 0, 32)
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return id, false
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f':
			digits = append(digits, c)
		default:
			return id, false
		}
	}
	_, err := hex.Decode(id[:], digits)
	return id, err == nil
}

func formatUUID(id [16]byte) string {
	s := hex.EncodeToString(id[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
