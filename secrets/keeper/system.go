package keeper

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// system answers sys/. What must answer while sealed is no engine's: see Keeper's methods.
type system struct {
	task.Own
	k *Keeper
}

// Special implements engine.Engine.
func (*system) Special() engine.Special {
	return engine.Special{Open: []string{"wrapping/unwrap", "wrapping/lookup", "wrapping/rewrap", "replication/status", "replication/dr/status", "replication/performance/status"}, Token: []string{"internal/ui/mounts", "internal/ui/mounts/*"}, Visible: []string{"internal/ui/mounts"}, Protected: []string{"pprof", "pprof/*", "leases/tidy", "plugins/catalog/*", "plugins/reload/*", "config/cors", "config/auditing/*", "auth/*", "rotate", "rotate/*", "storage/raft/*", "rekey/*", "rekey-recovery-key/*", "generate-root/*", "seal", "step-down", "audit", "audit/*", "remount", "raw/*", "leases/lookup/*", "leases/revoke-prefix/*", "leases/revoke-force/*", "leases/revocation/*",
		"revoke-prefix/*", "revoke-force/*"}}
}

// row is one of the system's paths. Path ends in '/' where a name follows.
type row struct {
	path  string
	read  func(*system, *sysCall) (any, error)
	write func(*system, *sysCall) (any, error)
	list  func(*system, *sysCall) (any, error)
	del   func(*system, *sysCall) (any, error)
}

// sysCall is a request to the system with what it found.
type sysCall struct {
	context.Context
	*task.Task
	name string // what follows the row's path
	f    *secrets.Fields
}

var rows = slices.Concat(toolRows, []row{
	{path: "mounts", read: (*system).mounts},
	{path: "mounts/", read: (*system).mountOrTune, write: (*system).mountOrTuneWrite, del: (*system).unmount},
	{path: "auth", read: (*system).authMounts},
	{path: "auth/", read: (*system).mountOrTune, write: (*system).mountOrTuneWrite, del: (*system).unmount},
	{path: "internal/ui/mounts", read: (*system).uiMounts},
	{path: "internal/ui/mounts/", read: (*system).uiMount},
	{path: "policy", read: (*system).policyNames, list: (*system).policyNames},
	{path: "policy/", read: (*system).readPolicyOld, write: (*system).writePolicy, del: (*system).deletePolicy},
	{path: "policies/acl", list: (*system).policyNames},
	{path: "policies/acl/", read: (*system).readPolicy, write: (*system).writePolicy, del: (*system).deletePolicy, list: (*system).policyNames},
	{path: "capabilities", write: (*system).capabilities},
	{path: "capabilities-self", write: (*system).capabilities},
	{path: "capabilities-accessor", write: (*system).capabilities},
	{path: "key-status", read: (*system).keyStatus},
	{path: "rotate", write: (*system).rotate},
	{path: "rotate/keyring", write: (*system).rotate},
	{path: "leases/lookup", write: (*system).leaseLookup, list: (*system).leaseList},
	{path: "leases/lookup/", write: (*system).leaseLookup, list: (*system).leaseList},
	{path: "leases/renew", write: (*system).leaseRenew},
	{path: "leases/renew/", write: (*system).leaseRenew},
	{path: "leases/revoke", write: (*system).leaseRevoke},
	{path: "leases/revoke/", write: (*system).leaseRevoke},
	{path: "leases/revoke-prefix/", write: (*system).leaseRevokePrefix},
	{path: "leases/revoke-force/", write: (*system).leaseRevokeForce},
	{path: "leases/count", read: (*system).leaseCount},
	{path: "leases", read: (*system).leasesIrrevocable},
	{path: "leases/revocation", read: (*system).revocation},
	{path: "leases/revocation/pause", write: (*system).revocationPause},
	{path: "leases/revocation/resume", write: (*system).revocationResume},
	{path: "leases/attribution", read: (*system).attribution},
	{path: "renew", write: (*system).leaseRenew},
	{path: "renew/", write: (*system).leaseRenew},
	{path: "revoke", write: (*system).leaseRevoke},
	{path: "revoke/", write: (*system).leaseRevoke},
	{path: "revoke-prefix/", write: (*system).leaseRevokePrefix},
	{path: "revoke-force/", write: (*system).leaseRevokeForce},
	{path: "wrapping/wrap", write: (*system).wrapRequest},
	{path: "wrapping/unwrap", write: (*system).unwrap},
	{path: "wrapping/rewrap", write: (*system).rewrap},
	{path: "wrapping/lookup", read: (*system).wrappingLookup, write: (*system).wrappingLookup},
	{path: "rotate/root", write: (*system).rotateRoot},
	{path: "seal", write: (*system).seal},
	{path: "step-down", write: (*system).stepDown},
})

// Answer implements Handler.
func (s *system) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &sysCall{Context: ctx, Task: t, f: f}
	rest := r.Rest
	if r.Op == secrets.List {
		rest = strings.TrimSuffix(rest, "/")
	}
	for i := range rows {
		row := &rows[i]
		name, below := strings.CutPrefix(rest, row.path)
		if !(rest == row.path || (below && strings.HasSuffix(row.path, "/") && name != "")) {
			continue
		}
		do := map[secrets.Operation]func(*system, *sysCall) (any, error){secrets.Read: row.read, secrets.Create: row.write, secrets.Update: row.write,
			secrets.List: row.list, secrets.Delete: row.del}[r.Op]
		if do == nil {
			return nil, errUnsupported
		}
		c.name = name
		return rowAnswer(do(s, c))
	}
	if of := s.k.cfg.System; of != nil {
		data, found, err := of(ctx, r.Op, rest, f)
		if err != nil || found {
			return rowAnswer(data, err)
		}
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

// rowAnswer is a row's data as an answer.
func rowAnswer(data any, err error) (*secrets.Response, error) {
	if err != nil || data == nil {
		return &secrets.Response{}, err
	}
	if whole, ok := data.(*secrets.Response); ok {
		return whole, nil
	}
	if raw, ok := data.(json.RawMessage); ok { // as it came
		return &secrets.Response{Data: raw}, nil
	}
	text, err := json.Marshal(data)
	return &secrets.Response{Data: text}, err
}

// keyStatus is the state of the barrier's key.
func (s *system) keyStatus(*sysCall) (any, error) {
	st, err := s.k.records.Barrier.Status()
	return map[string]any{"term": st.Term, "install_time": st.Installed.UTC().Format(time.RFC3339Nano), "encryptions": st.Encryptions}, err
}

func (s *system) rotate(c *sysCall) (any, error) {
	return nil, s.k.records.Barrier.Rotate(c, s.k.records.Epoch())
}

func (s *system) seal(*sysCall) (any, error) {
	s.k.Seal()
	return nil, nil
}

func (s *system) rotateRoot(c *sysCall) (any, error) { return nil, s.k.RotateRoot(c) }

// stepDown has another server become the active one; alone, it changes nothing, as in Vault.
func (s *system) stepDown(*sysCall) (any, error) {
	if s.k.cfg.StepDown != nil {
		s.k.cfg.StepDown()
	}
	return nil, nil
}

// capabilities tells what a token may do at paths.
func (s *system) capabilities(c *sysCall) (any, error) {
	paths := append(c.f.Strings("paths"), c.f.Strings("path")...)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errkind.New(errkind.Invalid, "paths must be supplied")
	}
	acl := c.Bearer.ACL
	if !strings.HasSuffix(c.Rest, "-self") {
		tok, err := s.asked(c)
		if err != nil {
			return nil, err
		}
		if acl, err = s.k.rights.ACL(c, c.Tables, tok.Policies, tok.Entity); err != nil {
			return nil, err
		}
	}
	out := map[string]any{}
	for _, p := range paths {
		out[p] = acl.Capabilities(strings.TrimPrefix(p, "/"))
	}
	out["capabilities"] = out[paths[0]]
	return out, nil
}

func (s *system) asked(c *sysCall) (tok *token.Token, err error) {
	if strings.HasSuffix(c.Rest, "-accessor") {
		tok, err = c.Tables.Book.ByAccessor(c, c.f.String("accessor"))
	} else {
		tok, err = s.k.rights.Token(c, c.Tables, c.f.String("token"))
	}
	if err == nil && (tok == nil || tok.Expired(c.Now)) {
		err = errkind.New(errkind.Invalid, "invalid token")
	}
	return tok, err
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
