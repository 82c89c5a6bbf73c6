package auditing

import (
	"context"
	"maps"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
)

// auditHeadersKey is where the names of the headers that are recorded are.
const auditHeadersKey = "core/audited-headers"

// maxAuditHeaders bounds how many there are: each is looked for in every request.
const maxAuditHeaders = 128

func (b *Broker) loadAuditHeaders(ctx context.Context, st *tables.Tables) error {
	_, err := b.records.GetJSON(ctx, auditHeadersKey, &st.Headers)
	return err
}

func shownHeader(hash bool) map[string]bool { return map[string]bool{"hmac": hash} }

func (b *Broker) auditHeaderList(c *system.Call) (any, error) {
	out := map[string]any{}
	for name, hash := range c.Tables.Headers {
		out[name] = shownHeader(hash)
	}
	return map[string]any{"headers": out}, nil
}

func (b *Broker) readAuditHeader(c *system.Call) (any, error) {
	name := strings.ToLower(c.Name)
	hash, ok := c.Tables.Headers[name]
	if !ok {
		return nil, errkind.New(errkind.Invalid, "Could not find header in config")
	}
	return map[string]any{name: shownHeader(hash)}, nil
}

func (b *Broker) writeAuditHeader(c *system.Call) (any, error) {
	hash := c.F.Bool("hmac", false)
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	name := strings.ToLower(c.Name)
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' || r == '/' }) {
		return nil, errkind.Errorf(errkind.Invalid, "header: %q is no name of a header", c.Name)
	}
	if !hash && (name == "x-vault-token" || name == "authorization") {
		return nil, errkind.Errorf(errkind.Invalid, "hmac: must be true for %s, which holds tokens", name)
	}
	if _, has := c.Tables.Headers[name]; !has && len(c.Tables.Headers) >= maxAuditHeaders {
		return nil, errkind.Errorf(errkind.Invalid, "header: there are %d already, as many as may be", maxAuditHeaders)
	}
	return nil, b.changeAuditHeaders(c, func(next tables.Headers) { next[name] = hash })
}

func (b *Broker) deleteAuditHeader(c *system.Call) (any, error) {
	return nil, b.changeAuditHeaders(c, func(next tables.Headers) { delete(next, strings.ToLower(c.Name)) })
}

func (b *Broker) changeAuditHeaders(c *system.Call, change func(tables.Headers)) error {
	return b.gate.Change(c, func(st tables.Tables) (*tables.Tables, []storage.Op, error) {
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
