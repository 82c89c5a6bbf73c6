package sealing

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

// firstRecords are what a new store begins with.
func (s *Sealing) firstRecords(rootToken string) (ops []storage.Op, id string, err error) {
	for _, e := range []*mount.Entry{
		{Path: "sys/", Type: "system", Description: "system endpoints used for control, policy and debugging"},
		{Path: "cubbyhole/", Type: "cubbyhole", Description: "per-token private secret storage", Local: true},
		{Path: tables.IdentityPath, Type: "identity", Description: "identity store"},
		{Path: "auth/token/", Type: "token", Description: "token based credentials"},
	} {
		e.UUID, e.Accessor = uuid.NewString(), tables.AccessorOf(e)
		op, err := storage.PutJSON(tables.MountPrefix+e.UUID, e)
		if err != nil {
			return nil, "", err
		}
		ops = append(ops, op)
	}
	salt := token.NewSalt()
	id = rootToken
	if id == "" {
		id = token.NewID()
	}
	root := &token.Token{Origin: token.Origin{Path: "auth/token/root"}, DisplayName: "root",
		Policies: []string{policy.RootName}}
	root.Begin(s.cfg.Now(), 0, token.Limits{})
	made := (&token.Book{Salt: salt}).Make(id, root)
	info, err := storage.PutJSON(clusterInfoKey,
		ClusterInfo{Name: cmp.Or(s.cfg.ClusterName, fmt.Sprintf("vault-cluster-%x", random(4))), ID: uuid.NewString()})
	ops = append(ops, info)
	ops = append(append(ops, made...), storage.Put(token.SaltKey, salt),
		storage.Put(tables.PolicyPrefix+"default", []byte(tables.DefaultPolicy)))
	return ops, id, err
}

// initKeys reads them, before anything is made.
func (s *Sealing) initKeys(c *InitConfig) (out firstKeys, err error) {
	if s.cfg.Auto == nil && len(c.RecoveryPGPKeys) > 0 {
		return out, errkind.New(errkind.Invalid, "recovery_pgp_keys: are for an automatic seal, and this server's is shamir")
	}
	var errs [3]error
	out.shares, errs[0] = parseShareKeys("pgp_keys", c.PGPKeys, c.Shares)
	out.recovery, errs[1] = parseShareKeys("recovery_pgp_keys", c.RecoveryPGPKeys, c.RecoveryShares)
	if c.RootPGPKey != "" {
		out.root, errs[2] = parseShareKeys("root_token_pgp_key", []string{c.RootPGPKey}, 1)
	}
	return out, cmp.Or(errs[0], errs[1], errs[2])
}
