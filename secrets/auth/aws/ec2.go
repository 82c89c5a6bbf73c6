package aws

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

// document is what AWS says of a machine.
type document struct {
	Account string    `json:"accountId"`
	AMI     string    `json:"imageId"`
	Machine string    `json:"instanceId"`
	Region  string    `json:"region"`
	Since   time.Time `json:"pendingTime"`
}

// seen is a machine that logged in, under "identity-accesslist/<instance>".
type seen struct {
	Role  string    `json:"role"`
	Nonce string    `json:"nonce"`
	Since time.Time `json:"pending_time"`
	First time.Time `json:"creation_time"`
	Last  time.Time `json:"last_updated_time"`
	Once  bool      `json:"disallow_reauthentication,omitempty"`
}

// seenMachine answers the requests of a machine's record. Nobody reads the nonce.
func seenMachine(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response, error) {
	switch r.Op {
	case secrets.Read:
		s, err := auth.Find[seen](ctx, view, seenPrefix, name)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, auth.ErrNotFound
		}
		return auth.Data(map[string]any{"role": s.Role, "pending_time": s.Since.Format(time.RFC3339),
			"creation_time": s.First.Format(time.RFC3339Nano), "last_updated_time": s.Last.Format(time.RFC3339Nano),
			"disallow_reauthentication": s.Once})
	case secrets.Delete:
		return &secrets.Response{Ops: []secrets.Op{storage.Delete(seenPrefix + name)}}, nil
	}
	return nil, auth.ErrUnsupported
}

// machine logs in a machine by its document.
func (l *attempt) machine() (*secrets.Response, error) {
	d, err := l.document()
	if err != nil {
		return nil, err
	}
	if l.role == "" {
		l.role = d.AMI // as Vault has it
	}
	r, err := l.found(l.role, ofEC2)
	if err != nil {
		return nil, err
	}
	within := func(bound []string, value string) bool { return len(bound) == 0 || slices.Contains(bound, value) }
	switch {
	case !within(r.Accounts, d.Account):
		return nil, invalid("account ID %q does not belong to role %q", d.Account, l.role)
	case !within(r.AMIs, d.AMI):
		return nil, invalid("AMI ID %q does not belong to role %q", d.AMI, l.role)
	case !within(r.Regions, d.Region):
		return nil, invalid("region %q does not satisfy the constraint on role %q", d.Region, l.role)
	case !within(r.Machines, d.Machine):
		return nil, invalid("instance ID %q does not belong to role %q", d.Machine, l.role)
	}
	if !l.Alone {
		return nil, engine.Alone(seenPrefix + d.Machine)
	}
	nonce, op, err := l.first(r, d)
	if err != nil {
		return nil, err
	}
	n, err := l.aliases()
	if err != nil {
		return nil, err
	}
	a := r.Tokens.Auth()
	a.Alias = map[string]string{"role_id": r.ID, "instance_id": d.Machine, "image_id": d.AMI}[n.EC2]
	a.DisplayName = auth.DisplayName(l.Mount, d.Machine)
	a.Metadata = map[string]string{"role": l.role, "role_id": r.ID, "auth_type": ofEC2, "account_id": d.Account,
		"ami_id": d.AMI, "instance_id": d.Machine, "region": d.Region}
	resp, err := kept{Role: l.role}.token(a)
	if err != nil {
		return nil, err
	}
	if nonce != "" { // the token's metadata alone: an alias is read by others
		a.AliasMeta = maps.Clone(a.Metadata)
		a.Metadata["nonce"] = nonce
	}
	resp.Ops = []secrets.Op{op}
	return resp, nil
}

// first looks whether a machine logged in before: then it must know the nonce of its first time. nonce is the one that
// was drawn, "" where the machine has it.
func (l *attempt) first(r *role, d *document) (nonce string, op secrets.Op, err error) {
	given := l.f.String("nonce")
	if err := l.f.Err(); err != nil {
		return "", op, err
	}
	s, err := auth.Find[seen](l, l.view, seenPrefix, d.Machine)
	if err != nil {
		return "", op, err
	}
	now := l.Now.UTC()
	switch {
	case s == nil:
		s = &seen{Nonce: given, First: now}
		if given == "" {
			nonce = uuid.NewString()
			s.Nonce = nonce
		}
	case s.Once || r.Once:
		return "", op, invalid("reauthentication is disabled: delete identity-accesslist/%s to allow another", d.Machine)
	case d.Since.Before(s.Since):
		return "", op, invalid("the document is older than the one of the last login")
	case r.Migration && d.Since.After(s.Since): // the machine was stopped and started
		if given != "" {
			s.Nonce = given
		}
	case subtle.ConstantTimeCompare([]byte(given), []byte(s.Nonce)) != 1:
		return "", op, invalid("client nonce mismatch: the nonce of the machine's first login is needed")
	}
	s.Role, s.Since, s.Last, s.Once = l.role, d.Since, now, r.Once
	op, err = storage.PutJSON(seenPrefix+d.Machine, s)
	return nonce, op, err
}

// document is the machine's, once AWS' signature was found good.
func (l *attempt) document() (*document, error) {
	packed, plain, signature := l.f.String("pkcs7"), l.f.String("identity"), l.f.String("signature")
	if err := l.f.Err(); err != nil {
		return nil, err
	}
	var raw []byte
	var err error
	if packed != "" {
		raw, err = l.unpacked(packed)
	} else {
		raw, err = l.vouched(plain, signature)
	}
	if err != nil {
		return nil, err
	}
	d := &document{}
	if json.Unmarshal(raw, d) != nil || d.Machine == "" || d.Account == "" || d.AMI == "" || d.Since.IsZero() ||
		storage.CheckKey(seenPrefix+d.Machine) != nil || strings.Contains(d.Machine, "/") {
		return nil, invalid("the document that AWS signed is none of a machine")
	}
	return d, nil
}

// unpacked is the document in a message of PKCS 7.
func (l *attempt) unpacked(packed string) ([]byte, error) {
	keys, err := l.keysOf(ofPKCS7)
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(squeezed(packed))
	if err != nil {
		return nil, invalid("field \"pkcs7\": must be base64")
	}
	content, err := signedContent(raw, keys)
	if err != nil {
		return nil, invalid("field \"pkcs7\": %v", err)
	}
	return content, nil
}

// vouched is a document with a signature beside it.
func (l *attempt) vouched(plain, signature string) ([]byte, error) {
	keys, err := l.keysOf(ofIdentity)
	if err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.DecodeString(squeezed(plain))
	if err != nil || signature == "" {
		return nil, invalid("fields \"identity\", \"signature\": must both be given, in base64")
	}
	mark, err := base64.StdEncoding.DecodeString(squeezed(signature))
	if err != nil {
		return nil, invalid("field \"signature\": must be base64")
	}
	sum := sha256.Sum256(content)
	if !slices.ContainsFunc(keys, func(key any) bool {
		public, is := key.(*rsa.PublicKey)
		return is && rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], mark) == nil
	}) {
		return nil, invalid("field \"signature\": is of none of the certificates of config/certificate")
	}
	return content, nil
}

// squeezed is base64 without its lines, and without what PEM has around it.
func squeezed(text string) string {
	text = strings.TrimPrefix(strings.TrimSpace(text), "-----BEGIN PKCS7-----")
	return strings.Join(strings.Fields(strings.TrimSuffix(text, "-----END PKCS7-----")), "")
}
