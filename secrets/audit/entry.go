package audit

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/mount"
)

// Entry is a request, or with Answer set also what it was answered with.
type Entry struct {
	Time    time.Time
	Request *secrets.Request
	Mount   *mount.Entry // nil: no mount has the path
	Auth    Auth         // whose request it is; the zero value is nobody known
	Version string       // of the mounts' engines; "": not told
	// HashHeaders says of the request's headers which are hashed; those that it does not name are left out.
	HashHeaders map[string]bool
	// Answer makes it an entry of type "response".
	Answer   bool
	Response *Response // nil where there was none but an error
	Error    string    // what the client is told
}

// Auth is a token: the one that a request came with, or one that was made for it.
type Auth struct {
	ID, Accessor, DisplayName string
	Verdict
	Metadata map[string]string
	Entity   string
	Type     string
	TTL      time.Duration
	Issued   time.Time
	NumUses  int  // left
	Uses     bool // it is a request's own: NumUses are those that remain
}

// Verdict is which policies held, and what they said.
type Verdict struct {
	Space              string // the id of the namespace whose policies they are; "": the root one
	Policies, Granting []string
	Identity           []string // policies by its entity and that one's groups
	Decided, Allowed   bool     // what the policies said, once they were asked
	NoDefault          bool     // made without the policy default
}

// Response is what a client is given.
type Response struct {
	Data     []byte // JSON
	Warnings []string
	LeaseID  string
	Auth     *Auth
	Wrap     *Wrap
	Raw      *secrets.Raw
}

// Wrap is what stands for an answer that was wrapped.
type Wrap struct {
	Token, Accessor, Wrapped string
	TTL                      time.Duration
	Created                  time.Time
	Path                     string
}

// encode writes the entry as the contract's section 5 has it. Empty members are left out, as by Vault.
func (e *Entry) encode(r *record) {
	kind := "request"
	if e.Answer {
		kind = "response"
	}
	r.text = append(r.text, `{"time":"`...)
	r.text = e.Time.UTC().AppendFormat(r.text, time.RFC3339Nano)
	r.text = append(append(append(r.text, `","type":"`...), kind...), '"')
	if e.Error != "" {
		r.str("error", e.Error)
	}
	r.auth("auth", &e.Auth)
	e.request(r)
	if e.Response != nil {
		e.response(r)
	}
	r.str("forwarded_from", e.Request.From)
	r.text = append(r.text, '}')
}

// name begins a member of an object.
func (r *record) name(name string) {
	if r.text[len(r.text)-1] != '{' {
		r.text = append(r.text, ',')
	}
	r.text = append(append(append(r.text, '"'), name...), `":`...)
}

func (r *record) str(name, value string) {
	if value != "" {
		r.name(name)
		r.text = appendQuoted(r.text, value)
	}
}

func (r *record) hidden(kind markKind, name, value string) {
	if value != "" {
		r.name(name)
		r.secret(kind, value)
	}
}

func (r *record) number(name string, n int64) {
	if n != 0 {
		r.name(name)
		r.text = strconv.AppendInt(r.text, n, 10)
	}
}

func (r *record) strs(name string, list []string) {
	if len(list) == 0 {
		return
	}
	r.name(name)
	r.text = append(r.text, '[')
	for i, s := range list {
		if i > 0 {
			r.text = append(r.text, ',')
		}
		r.text = appendQuoted(r.text, s)
	}
	r.text = append(r.text, ']')
}

func (r *record) auth(name string, a *Auth) {
	r.name(name)
	r.text = append(r.text, '{')
	r.hidden(secretMark, "client_token", a.ID)
	r.hidden(accessorMark, "accessor", a.Accessor)
	r.str("display_name", a.DisplayName)
	all := a.Policies
	if len(a.Identity) > 0 {
		all = slices.Concat(a.Policies, a.Identity)
		slices.Sort(all)
		all = slices.Compact(all)
	}
	r.strs("policies", all)
	r.strs("token_policies", a.Policies)
	r.strs("identity_policies", a.Identity)
	if a.Decided {
		r.name("policy_results")
		r.text = strconv.AppendBool(append(r.text, `{"allowed":`...), a.Allowed)
		if len(a.Granting) > 0 {
			r.name("granting_policies")
			r.text = append(r.text, '[')
			for i, p := range a.Granting {
				if i > 0 {
					r.text = append(r.text, ',')
				}
				r.text = append(appendQuoted(append(r.text, `{"name":`...), p), `,"namespace_id":`...)
				r.text = append(appendQuoted(r.text, cmp.Or(a.Space, "root")), `,"type":"acl"}`...)
			}
			r.text = append(r.text, ']')
		}
		r.text = append(r.text, '}')
	}
	if len(a.Metadata) > 0 {
		r.name("metadata")
		if text, err := json.Marshal(a.Metadata); err == nil {
			r.text = append(r.text, text...)
		}
	}
	r.str("entity_id", a.Entity)
	r.str("token_type", a.Type)
	r.number("token_ttl", int64(a.TTL/time.Second))
	if !a.Issued.IsZero() {
		r.str("token_issue_time", a.Issued.UTC().Format(time.RFC3339Nano))
	}
	r.number("num_uses", int64(a.NumUses))
	if a.Uses {
		r.number("remaining_uses", int64(a.NumUses))
	}
	if a.NoDefault {
		r.name("no_default_policy")
		r.text = append(r.text, "true"...)
	}
	r.text = append(r.text, '}')
}

// headers writes those of the request that are recorded, by name.
func (e *Entry) headers(r *record) {
	begun := false
	for _, name := range slices.Sorted(maps.Keys(e.Request.Headers)) {
		hash, recorded := e.HashHeaders[name]
		if !recorded {
			continue
		}
		if !begun {
			begun = true
			r.name("headers")
			r.text = append(r.text, '{')
		}
		if !hash {
			r.strs(name, e.Request.Headers[name])
			continue
		}
		r.name(name)
		r.text = append(r.text, '[')
		for i, v := range e.Request.Headers[name] {
			if i > 0 {
				r.text = append(r.text, ',')
			}
			r.secret(secretMark, v)
		}
		r.text = append(r.text, ']')
	}
	if begun {
		r.text = append(r.text, '}')
	}
}

// serial is that of the certificate that the caller's connection showed; "" where there is none.
func serial(q *secrets.Request) string {
	if len(q.Certificates) == 0 {
		return ""
	}
	c, err := x509.ParseCertificate(q.Certificates[0])
	if err != nil {
		return ""
	}
	return c.SerialNumber.String()
}

func (e *Entry) mount(r *record) {
	m := e.Mount
	if m == nil {
		return
	}
	r.str("mount_point", m.Path)
	r.str("mount_type", m.Type)
	r.str("mount_accessor", m.Accessor)
	class := "secret"
	if m.Auth() {
		class = "auth"
	}
	r.str("mount_running_version", e.Version)
	r.str("mount_class", class)
}

func (e *Entry) request(r *record) {
	q := e.Request
	r.name("request")
	r.text = append(r.text, '{')
	r.str("id", q.ID)
	r.str("client_id", e.Auth.Entity)
	r.str("operation", q.Op.String())
	e.mount(r)
	r.hidden(secretMark, "client_token", q.Token)
	r.hidden(accessorMark, "client_token_accessor", e.Auth.Accessor)
	if q.Space == "" {
		r.text = append(r.text, `,"namespace":{"id":"root"}`...)
	} else {
		r.name("namespace")
		r.text = append(r.text, '{')
		r.str("id", q.SpaceID)
		r.str("path", q.Space)
		r.text = append(r.text, '}')
	}
	r.str("path", q.Path)
	var clear []string
	if e.Mount != nil {
		clear = e.Mount.Config.AuditRequestClear
	}
	switch {
	case len(q.Body) > 0:
		r.name("data")
		r.data(q.Body, clear, false)
	case q.Query.Len() > 0:
		if raw, err := json.Marshal(q.Query.Plain()); err == nil {
			r.name("data")
			r.data(raw, clear, false)
		}
	}
	if q.Remote.IsValid() {
		r.str("remote_address", q.Remote.String())
		r.number("remote_port", int64(q.RemotePort))
	}
	r.number("wrap_ttl", int64(q.Wrap/time.Second))
	e.headers(r)
	r.str("client_certificate_serial_number", serial(q))
	r.text = append(r.text, '}')
}

func (e *Entry) response(r *record) {
	p := e.Response
	r.name("response")
	r.text = append(r.text, '{')
	e.mount(r)
	if p.Auth != nil {
		r.auth("auth", p.Auth)
	}
	if p.LeaseID != "" {
		r.name("secret")
		r.text = append(appendQuoted(append(r.text, `{"lease_id":`...), p.LeaseID), '}')
	}
	if w := p.Wrap; w != nil {
		r.name("wrap_info")
		r.text = append(r.text, '{')
		r.number("ttl", int64(w.TTL/time.Second))
		r.hidden(secretMark, "token", w.Token)
		r.hidden(accessorMark, "accessor", w.Accessor)
		r.str("creation_time", w.Created.UTC().Format(time.RFC3339Nano))
		r.str("creation_path", w.Path)
		r.hidden(accessorMark, "wrapped_accessor", w.Wrapped)
		r.text = append(r.text, '}')
	}
	switch {
	case p.Raw != nil:
		r.name("data")
		r.text = append(r.text, '{')
		r.str("http_content_type", p.Raw.ContentType)
		r.hidden(secretMark, "http_raw_body", string(p.Raw.Body))
		r.number("http_status_code", int64(cmp.Or(p.Raw.Status, 200)))
		r.text = append(r.text, '}')
	case p.Data != nil:
		r.name("data")
		var clear []string
		if e.Mount != nil {
			clear = e.Mount.Config.AuditResponseClear
		}
		r.data(p.Data, clear, strings.HasSuffix(e.Request.Path, "/") && e.Request.Op == secrets.List)
	}
	r.strs("warnings", p.Warnings)
	r.text = append(r.text, '}')
}
