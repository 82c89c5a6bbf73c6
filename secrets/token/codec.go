package token

import (
	"errors"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// recordVersion begins a token's record. Fields are only ever added at its end: one that a
// record is too short for is zero.
const recordVersion = 1

var errRecord = errors.New("not a token's record")

// encode gives the token's record, some 100 bytes. The hash is the record's name and not in it.
func (t *Token) encode() []byte {
	return pack.AppendFields(append(make([]byte, 0, 128), recordVersion), t.pass)
}

func decode(raw []byte) (*Token, error) {
	if len(raw) == 0 || raw[0] != recordVersion {
		return nil, errRecord
	}
	t, r := &Token{}, pack.Read(raw[1:])
	if pack.ReadFields(r, t.pass); r.Err() != nil {
		return nil, errRecord
	}
	return t, nil
}

func (t *Token) pass(c *pack.Coder) {
	c.String(&t.Parent, &t.Path, &t.DisplayName)
	c.Strings(&t.Policies)
	pack.Map(c, &t.Meta, pack.Any, func(value *string) { c.String(value) })
	passTime(c, &t.Created, &t.Expires, &t.Indexed, &t.Renewed)
	pack.Signed(c, &t.TTL, &t.MaxTTL, &t.ExplicitMax, &t.Period)
	c.Bool(&t.Renewable)
	pack.Signed(c, &t.Uses)
	c.String(&t.Entity, &t.Role)
	c.Strings(&t.CIDRs)
	if c.Reads() || len(t.Login) > 0 || t.Workload != "" {
		c.Copy(&t.Login)
		c.String(&t.Workload)
	}
}

// passTime passes times: 0 for none, else one more than its nanoseconds since the epoch.
func passTime(c *pack.Coder, list ...*time.Time) {
	for _, at := range list {
		n := int64(0)
		if !at.IsZero() {
			n = at.UnixNano() + 1
		}
		if pack.Signed(c, &n); c.Reads() && n != 0 {
			*at = time.Unix(0, n-1).UTC()
		}
	}
}
