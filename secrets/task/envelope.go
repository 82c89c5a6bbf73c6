package task

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/token"
)

// Reply is what a request is answered with.
type Reply struct {
	*secrets.Response
	Token *Issued // of Response.Auth
	// Demand is what a login lacks, in the place of its token.
	Demand *Demand
	Lease  *Leased   // of Response.Lease, or of a renewal
	Wrap   *WrapInfo // in the place of the answer, which was stored
	Mount  *mount.Entry
}

// Issued is a token that the keeper made or renewed.
type Issued struct {
	ID string // "" where only the accessor may be told
	*token.Token
	Left     time.Duration
	Identity []string // policies by its entity and that one's groups
}

// Leased is a lease as its holder is told of it.
type Leased struct {
	ID        string
	Left      time.Duration
	Renewable bool
}

// Envelope encodes the answer as the contract's 1.2 has it: all keys, in the order that
// Vault's are in. It is here and not with HTTP alone because a wrapped answer is stored
// as its reader will get it. top copies the members of the data to the top as well.
func (r *Reply) Envelope(out []byte, q *secrets.Request, top bool) []byte {
	id := q.ID
	if r.Wrap != nil {
		id = ""
	}
	out = append(append(append(out, `{"request_id":"`...), id...), `","lease_id":`...)
	if l := r.Lease; l != nil {
		out = append(strconv.AppendBool(append(appendJSON(out, l.ID), `,"renewable":`...), l.Renewable),
			`,"lease_duration":`...)
		out = strconv.AppendInt(out, Seconds(l.Left), 10)
	} else {
		out = append(out, `"","renewable":false,"lease_duration":`...)
		out = strconv.AppendInt(out, int64(r.LeaseTTL/time.Second), 10)
	}
	out = append(out, `,"data":`...)
	if r.Data == nil {
		out = append(out, "null"...)
	} else {
		out = append(out, r.Data...)
	}
	out = append(out, `,"wrap_info":`...)
	if r.Wrap == nil {
		out = append(out, "null"...)
	} else {
		out = appendJSON(out, r.Wrap.shown())
	}
	out = append(out, `,"warnings":`...)
	if len(r.Warnings) == 0 {
		out = append(out, "null"...)
	} else {
		out = appendJSON(out, r.Warnings)
	}
	out = append(out, `,"auth":`...)
	switch {
	case r.Token != nil:
		out = appendJSON(out, r.Token.shown())
	case r.Demand != nil:
		out = appendJSON(out, &shownAuth{MFA: r.Demand})
	default:
		out = append(out, "null"...)
	}
	out = append(append(append(out, `,"mount_type":"`...), r.Mount.Type...), '"')
	if top && r.Hoisted(q.Path) && len(r.Data) > 2 && r.Data[0] == '{' {
		out = append(append(out, ','), r.Data[1:len(r.Data)-1]...)
	}
	return append(out, '}', '\n')
}

func appendJSON(out []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(out, "null"...) // of strings, numbers and lists of them: cannot be
	}
	return append(out, text...)
}

// Demand is a second factor that a login lacks: of each constraint one of its methods.
type Demand struct {
	ID          string           `json:"mfa_request_id"`
	Constraints map[string]AnyOf `json:"mfa_constraints"` // by the name of the enforcement
}

// AnyOf lists methods of which one will do.
type AnyOf struct {
	Any []Factor `json:"any"`
}

// Factor is a method as a login is told of it.
type Factor struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Passcode bool   `json:"uses_passcode"`
	Name     string `json:"name,omitempty"`
}

// shownAuth is a token as whoever gets it is told; a struct, since every login makes one.
type shownAuth struct {
	Accessor      string            `json:"accessor"`
	ID            string            `json:"client_token"`
	Entity        string            `json:"entity_id"`
	Identity      []string          `json:"identity_policies,omitempty"`
	Left          int64             `json:"lease_duration"`
	Meta          map[string]string `json:"metadata"`
	MFA           *Demand           `json:"mfa_requirement"`
	Uses          int               `json:"num_uses"`
	Orphan        bool              `json:"orphan"`
	Policies      []string          `json:"policies"`
	Renewable     bool              `json:"renewable"`
	TokenPolicies []string          `json:"token_policies"`
	Type          string            `json:"token_type"`
}

func (t *Issued) shown() *shownAuth {
	all := t.Policies
	if len(t.Identity) > 0 {
		all = slices.Concat(t.Policies, t.Identity)
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return &shownAuth{ID: t.ID, Accessor: t.Accessor, Policies: all, TokenPolicies: t.Policies, Meta: t.Meta,
		Left: Seconds(t.Left), Identity: t.Identity,
		Renewable: t.Renewable && !t.Expires.IsZero(), Entity: t.Entity, Type: t.Type(), Orphan: t.Parent == "",
		Uses: max(t.Uses, 0)}
}

// WrapInfo is what stands for an answer that was wrapped.
type WrapInfo struct {
	Token, Accessor string
	TTL             time.Duration
	Created         time.Time
	Path            string
	Wrapped         string // the accessor of the token inside
}

func (w *WrapInfo) shown() map[string]any {
	out := map[string]any{"token": w.Token, "accessor": w.Accessor, "ttl": Seconds(w.TTL),
		"creation_time": w.Created.Format(time.RFC3339Nano), "creation_path": w.Path}
	if w.Wrapped != "" {
		out["wrapped_accessor"] = w.Wrapped
	}
	return out
}

// hoisted paths have their data at the top of the envelope too (contract 1.2).
func hoisted(rest string) bool {
	for _, p := range []string{"audit", "audit-hash", "auth", "mounts", "policy", "capabilities", "key-status",
		"ha-status", "remount", "rotate", "config/cors", "config/auditing/request-headers", "wrapping/wrap"} {
		if rest == p || strings.HasPrefix(rest, p+"/") || (p == "capabilities" && strings.HasPrefix(rest, p)) {
			return true
		}
	}
	return false
}

// Hoisted reports whether an answer's data is to be copied to the top of the envelope.
func (r *Reply) Hoisted(path string) bool {
	rest, ok := strings.CutPrefix(path, "sys/")
	return ok && hoisted(rest)
}

// Seconds is a time as the API tells it.
func Seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }
