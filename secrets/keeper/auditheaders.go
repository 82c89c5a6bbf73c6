package keeper

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
)

// auditHeadersKey is where the names of the headers that are recorded are.
const auditHeadersKey = "core/audited-headers"

// maxAuditHeaders bounds how many there are: each is looked for in every request.
const maxAuditHeaders = 128

// AuditedHeaders calls take with the name of each header that is recorded, in lower case. None while nothing records.
func (k *Keeper) AuditedHeaders(take func(name string)) {
	st := k.gate.Load()
	if st == nil {
		st = k.replica.state.Load()
	}
	if st == nil || len(st.Audits) == 0 {
		return
	}
	for name := range st.Headers {
		take(name)
	}
}

// AuditsHeaders reports whether any is recorded.
func (k *Keeper) AuditsHeaders() bool {
	st := k.gate.Load()
	return st != nil && len(st.Audits) > 0 && len(st.Headers) > 0
}

func (k *Keeper) loadAuditHeaders(ctx context.Context, st *tables.Tables) error {
	raw, ok, err := k.records.Get(ctx, auditHeadersKey)
	if err != nil || !ok {
		return err
	}
	if json.Unmarshal(raw, &st.Headers) != nil {
		return errkind.Errorf(errkind.Corrupt, "%s is not what was stored", auditHeadersKey)
	}
	return nil
}

func shownHeader(hash bool) map[string]bool { return map[string]bool{"hmac": hash} }

func (s *system) auditHeaderList(c *sysCall) (any, error) {
	out := map[string]any{}
	for name, hash := range c.Tables.Headers {
		out[name] = shownHeader(hash)
	}
	return map[string]any{"headers": out}, nil
}

func (s *system) readAuditHeader(c *sysCall) (any, error) {
	name := strings.ToLower(c.name)
	hash, ok := c.Tables.Headers[name]
	if !ok {
		return nil, errkind.New(errkind.Invalid, "Could not find header in config")
	}
	return map[string]any{name: shownHeader(hash)}, nil
}

func (s *system) writeAuditHeader(c *sysCall) (any, error) {
	hash := c.f.Bool("hmac", false)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	name := strings.ToLower(c.name)
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' || r == '/' }) {
		return nil, errkind.Errorf(errkind.Invalid, "header: %q is no name of a header", c.name)
	}
	if !hash && (name == "x-vault-token" || name == "authorization") {
		return nil, errkind.Errorf(errkind.Invalid, "hmac: must be true for %s, which holds tokens", name)
	}
	if _, has := c.Tables.Headers[name]; !has && len(c.Tables.Headers) >= maxAuditHeaders {
		return nil, errkind.Errorf(errkind.Invalid, "header: there are %d already, as many as may be", maxAuditHeaders)
	}
	return nil, s.changeAuditHeaders(c, func(next tables.Headers) { next[name] = hash })
}

func (s *system) deleteAuditHeader(c *sysCall) (any, error) {
	return nil, s.changeAuditHeaders(c, func(next tables.Headers) { delete(next, strings.ToLower(c.name)) })
}

func (s *system) changeAuditHeaders(c *sysCall, change func(tables.Headers)) error {
	return s.k.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
		next := maps.Clone(st.Headers)
		if next == nil {
			next = tables.Headers{}
		}
		change(next)
		op, err := storage.PutJSON(auditHeadersKey, next)
		st.Headers = next
		return &st, []storage.Op{op}, err
	})
}
