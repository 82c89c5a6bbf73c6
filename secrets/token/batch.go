package token

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// A batch token is stored nowhere: its id holds it, encrypted.
const (
	batchPrefix = "hvb."
	// BatchName is what its encryption is bound to: no stored record can be given out as a token.
	BatchName = "sys/token/batch"
	// maxBatchBytes bounds an id: more than headers may have.
	maxBatchBytes = 64 << 10
)

// batch is what an id holds.
type batch struct {
	Parent      string            `json:"u,omitempty"`
	Path        string            `json:"a"`
	DisplayName string            `json:"d"`
	Policies    []string          `json:"p"`
	Meta        map[string]string `json:"m,omitempty"`
	Created     time.Time         `json:"c"`
	TTL         time.Duration     `json:"t"`
	Entity      string            `json:"e,omitempty"`
	Role        string            `json:"r,omitempty"`
	CIDRs       []string          `json:"b,omitempty"`
	Space       string            `json:"n,omitempty"`
}

// Type is the kind of the token.
func (t *Token) Type() string {
	if t.Batch {
		return "batch"
	}
	return "service"
}

// CheckBatch reports what of the token no batch token can have.
func (t *Token) CheckBatch() error {
	for field, set := range map[string]bool{"num_uses": t.Uses != 0, "period": t.Period != 0,
		"explicit_max_ttl": t.ExplicitMax != 0} {
		if set {
			return errkind.Errorf(errkind.Invalid, "field %q: batch tokens cannot have it", field)
		}
	}
	if t.Root() {
		return errkind.New(errkind.Invalid, "field \"policies\": batch tokens cannot be root tokens")
	}
	return nil
}

// Text makes the id of a batch token that has begun, in a namespace; seal encrypts.
func (t *Token) Text(space string, seal func(plain []byte) ([]byte, error)) (string, error) {
	plain, err := json.Marshal(batch{t.Parent, t.Path, t.DisplayName, t.Policies, t.Meta, t.Created, t.TTL, t.Entity,
		t.Role, t.CIDRs, space})
	if err != nil {
		return "", err
	}
	record, err := seal(plain)
	id := batchPrefix + base64.RawURLEncoding.EncodeToString(record)
	if space != "" {
		id += "." + space
	}
	return id, err
}

// IsBatch reports whether an id can be a batch token's.
func IsBatch(id string) bool { return strings.HasPrefix(id, batchPrefix) }

// ReadBatch gives the token that an id holds, or nil where nobody made it; open decrypts.
func ReadBatch(id string, open func(record []byte) ([]byte, error)) (*Token, error) {
	text, ok := strings.CutPrefix(id, batchPrefix)
	space := SpaceOf(id)
	if space != "" {
		text = strings.TrimSuffix(text, "."+space)
	}
	record, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(id) > maxBatchBytes {
		return nil, nil
	}
	plain, err := open(record)
	if errkind.Is(err, errkind.Corrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var b batch
	if json.Unmarshal(plain, &b) != nil || b.Space != space {
		return nil, nil
	}
	return &Token{Batch: true, Origin: Origin{Parent: b.Parent, Path: b.Path}, DisplayName: b.DisplayName,
		Policies: b.Policies, Meta: b.Meta, Times: Times{Created: b.Created, Expires: b.Created.Add(b.TTL)},
		Lifetime: secrets.Lifetime{TTL: b.TTL}, Entity: b.Entity, Role: b.Role, CIDRs: b.CIDRs}, nil
}
