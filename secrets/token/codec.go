package token

import (
	"errors"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// recordVersion begins a token's record. Fields are only ever added at its end: one that a
// record is too short for is zero.
const recordVersion = 1

var errRecord = errors.New("not a token's record")

// encode gives the token's record, some 100 bytes. The hash is the record's name and not in it.
func (t *Token) encode() []byte {
	b := make([]byte, 0, 128)
	b = append(b, recordVersion)
	b = pack.String(b, t.Parent)
	b = pack.String(b, t.Path)
	b = pack.String(b, t.DisplayName)
	b = pack.Strings(b, t.Policies)
	b = pack.Uint(b, uint64(len(t.Meta)))
	for _, name := range slices.Sorted(maps.Keys(t.Meta)) {
		b = pack.String(pack.String(b, name), t.Meta[name])
	}
	for _, at := range []time.Time{t.Created, t.Expires, t.Indexed, t.Renewed} {
		b = packTime(b, at)
	}
	for _, d := range []time.Duration{t.TTL, t.MaxTTL, t.ExplicitMax, t.Period} {
		b = pack.Int(b, int64(d))
	}
	b = pack.Bool(b, t.Renewable)
	b = pack.Int(b, int64(t.Uses))
	b = pack.String(b, t.Entity)
	b = pack.String(b, t.Role)
	b = pack.Strings(b, t.CIDRs)
	if len(t.Login) == 0 && t.Workload == "" {
		return b
	}
	return pack.String(pack.Bytes(b, t.Login), t.Workload)
}

// packTime writes a time: 0 for none, else one more than its nanoseconds since the epoch.
func packTime(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return pack.Int(b, 0)
	}
	return pack.Int(b, at.UnixNano()+1)
}

func readTime(r *pack.Reader) time.Time {
	n := r.Int()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n-1).UTC()
}

func decode(raw []byte) (*Token, error) {
	if len(raw) == 0 || raw[0] != recordVersion {
		return nil, errRecord
	}
	r := pack.Read(raw[1:])
	t := &Token{Origin: Origin{Parent: r.String(), Path: r.String()}, DisplayName: r.String(), Policies: r.Strings()}
	if n := r.Count(); n > 0 {
		t.Meta = make(map[string]string, min(n, 64))
		for range n {
			name := r.String()
			t.Meta[name] = r.String()
			if r.Err() != nil {
				return nil, errRecord
			}
		}
	}
	for _, at := range []*time.Time{&t.Created, &t.Expires, &t.Indexed, &t.Renewed} {
		*at = readTime(r)
	}
	for _, d := range []*time.Duration{&t.TTL, &t.MaxTTL, &t.ExplicitMax, &t.Period} {
		*d = time.Duration(r.Int())
	}
	t.Renewable, t.Uses = r.Bool(), int(r.Int())
	t.Entity, t.Role, t.CIDRs = r.String(), r.String(), r.Strings()
	if r.More() {
		if login := r.Bytes(); len(login) > 0 {
			t.Login = slices.Clone(login)
		}
		t.Workload = r.String()
	}
	if r.Err() != nil {
		return nil, errRecord
	}
	return t, nil
}
