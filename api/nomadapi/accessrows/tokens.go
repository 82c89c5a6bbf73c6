package accessrows

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// link names a policy or role.
type link struct {
	ID   string `json:",omitempty"`
	Name string `json:",omitempty"`
}

// stored is a token as the catalog shows it.
type stored struct {
	AccessorID, SecretID, Description string
	Policies, Roles                   []link
	Local                             bool
	AuthMethod                        string
	ExpirationTime                    *time.Time
	CreateTime                        time.Time
	Hash                              []byte
	indexes
}

// wireToken is a token as clients of this API know it.
type wireToken struct {
	AccessorID     string
	SecretID       string `json:",omitempty"` // not in lists
	Name           string
	Type           string
	Policies       []string
	Roles          []link
	Global         bool
	Hash           []byte
	CreateTime     time.Time
	ExpirationTime *time.Time `json:",omitempty"`
	ExpirationTTL  span       `json:",omitempty"`
	CreateIndex    uint64
	ModifyIndex    uint64
	AuthMethod     string `json:",omitempty"` // this product's own
}

// The types of tokens.
const (
	typeClient     = "client"
	typeManagement = "management"
)

func show(t *stored) *wireToken {
	out := &wireToken{AccessorID: t.AccessorID, SecretID: t.SecretID, Name: t.Description, Type: typeClient,
		Roles: t.Roles, Global: !t.Local, Hash: t.Hash, CreateTime: t.CreateTime, ExpirationTime: t.ExpirationTime,
		CreateIndex: t.CreateIndex, ModifyIndex: t.ModifyIndex, AuthMethod: t.AuthMethod}
	for _, p := range t.Policies {
		if p.Name == globalManagement {
			out.Type = typeManagement
			continue
		}
		out.Policies = append(out.Policies, p.Name)
	}
	if out.Type == typeManagement {
		out.Policies, out.Roles = nil, nil
	}
	if t.ExpirationTime != nil {
		out.ExpirationTTL = span(t.ExpirationTime.Sub(t.CreateTime).Round(time.Second).String())
	}
	return out
}

// grants are the links that a token of this API is to have.
func (t *wireToken) grants() (policies, roles []link, err error) {
	switch {
	case t.Type == typeManagement && len(t.Policies)+len(t.Roles) > 0:
		return nil, nil, nomadrows.BadRequest("management token cannot be associated with policies or roles")
	case t.Type == typeManagement:
		return []link{{Name: globalManagement}}, nil, nil
	case t.Type != typeClient:
		return nil, nil, nomadrows.BadRequest("token type must be client or management")
	case len(t.Policies)+len(t.Roles) == 0:
		return nil, nil, nomadrows.BadRequest("client token missing policies or roles")
	}
	for _, name := range t.Policies {
		if name == globalManagement {
			return nil, nil, nomadrows.BadRequest("the policy %s is that of management tokens: set Type", globalManagement)
		}
		policies = append(policies, link{Name: name})
	}
	for _, r := range t.Roles {
		if r.ID != "" {
			r.Name = "" // the ID counts
		}
		roles = append(roles, r)
	}
	return policies, roles, nil
}

func bootstrap(q *request) error {
	in, err := nomadrows.DecodeOr[struct{ BootstrapSecret string }](q)
	if err != nil {
		return err
	}
	var made stored
	var body any
	if in.BootstrapSecret != "" {
		body = in
	}
	_, err = ask(q, http.MethodPut, "bootstrap", nil, body, &made)
	if errkind.Is(err, errkind.Denied) { // its text has the index that allows another one
		return nomadrows.BadRequest("ACL bootstrap already done: %s", errkind.Text(err))
	}
	return replied(q, &made, err)
}

// replied answers with a token that was written.
func replied(q *request, made *stored, err error) error {
	if err != nil {
		return told(err)
	}
	return q.Wrote(made.ModifyIndex, show(made))
}

func tokens(q *request) error {
	var all []*stored
	index, err := read(q, "tokens", nil, &all)
	if err != nil {
		return told(err)
	}
	global, ok := q.Query.Get("global")
	return showList(q, index, func(yield func(*wireToken) bool) {
		for _, t := range all {
			one := show(t)
			one.SecretID = ""
			if begins(q, t.AccessorID) && (!ok || strconv.FormatBool(one.Global) == global) && !yield(one) {
				return
			}
		}
	}, func(t *wireToken) string { return t.AccessorID })
}

func findToken(q *request, id string) (*stored, uint64, error) {
	var t stored
	index, err := read(q, "token/"+id, nil, &t)
	if errkind.Is(err, errkind.Denied) && errkind.Text(err) == "ACL not found" && id != "self" && known(q) {
		err = nomadrows.NotFound("ACL token not found")
	}
	return &t, index, err
}

// known tells whether the caller's own token exists: the catalog says the same of it and of one that is looked for.
func known(q *request) bool {
	var own stored
	_, err := ask(q, http.MethodGet, "token/self", nil, nil, &own)
	return err == nil
}

func token(q *request) error {
	t, index, err := findToken(q, q.Args["id"])
	if err != nil {
		return told(err)
	}
	return q.Told(index, show(t))
}

func selfToken(q *request) error {
	if q.Token() == "" {
		return nomadrows.Failed("Permission denied: no token was given")
	}
	t, index, err := findToken(q, "self")
	if err != nil {
		return told(err)
	}
	return q.Told(index, show(t))
}

// newToken is what is sent to the catalog.
type newToken struct {
	AccessorID, SecretID string `json:",omitempty"`
	Description          string
	Policies, Roles      []link
	Local                bool
	ExpirationTTL        span       `json:",omitempty"`
	ExpirationTime       *time.Time `json:",omitempty"`
}

func createToken(q *request) error {
	in, err := nomadrows.Decode[wireToken](q)
	if err != nil {
		return err
	}
	if in.AccessorID != "" && in.SecretID == "" {
		return nomadrows.BadRequest("use /v1/acl/token/%s to change a token", in.AccessorID)
	}
	policies, roles, err := in.grants()
	if err != nil {
		return err
	}
	var made stored
	_, err = ask(q, http.MethodPut, "token", nil, newToken{AccessorID: in.AccessorID, SecretID: in.SecretID,
		Description: in.Name, Policies: policies, Roles: roles, Local: !in.Global, ExpirationTTL: in.ExpirationTTL,
		ExpirationTime: in.ExpirationTime}, &made)
	return replied(q, &made, err)
}

// updateToken keeps what this API does not know of: identities of services and nodes.
func updateToken(q *request) error {
	in, err := nomadrows.Decode[wireToken](q)
	if err != nil {
		return err
	}
	id := q.Args["id"]
	if in.AccessorID != "" && in.AccessorID != id {
		return nomadrows.BadRequest("Token accessor ID does not match request path")
	}
	var now map[string]json.RawMessage
	if _, err := ask(q, http.MethodGet, "token/"+id, nil, nil, &now); err != nil {
		return told(err)
	}
	var old stored
	if text, err := json.Marshal(now); err != nil || json.Unmarshal(text, &old) != nil {
		return nomadrows.Failed("the token cannot be read")
	}
	if in.Type == "" {
		in.Type = show(&old).Type
	}
	policies, roles, err := in.grants()
	if err != nil {
		return err
	}
	for name, v := range map[string]any{"Description": in.Name, "Policies": policies, "Roles": roles} {
		if now[name], err = json.Marshal(v); err != nil {
			return err
		}
	}
	var made stored
	_, err = ask(q, http.MethodPut, "token/"+id, nil, now, &made)
	return replied(q, &made, err)
}

func deleteToken(q *request) error {
	index, err := ask(q, http.MethodDelete, "token/"+q.Args["id"], nil, nil, nil)
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.BadRequest("Cannot delete nonexistent tokens: %s", q.Args["id"])
	}
	return gone(q, index, err)
}

// gone answers a deletion.
func gone(q *request, index uint64, err error) error {
	if err != nil {
		return told(err)
	}
	return q.Wrote(index, nil)
}

// onceShown is a one-time token.
type onceShown struct {
	OneTimeSecretID, AccessorID string
	ExpiresAt                   time.Time
	indexes
}

func oneTime(q *request) error {
	var made onceShown
	_, err := call(q, nomadrows.AccessCall{Method: http.MethodPost, Path: "one-time", Own: true}, &made)
	if err != nil {
		return told(err)
	}
	return q.Wrote(made.ModifyIndex, struct {
		OneTimeToken *onceShown
		Index        uint64
	}{&made, made.ModifyIndex})
}

func exchange(q *request) error {
	in, err := nomadrows.Decode[struct{ OneTimeSecretID string }](q)
	if err != nil {
		return err
	}
	var t stored
	_, err = call(q, nomadrows.AccessCall{Method: http.MethodPost, Path: "one-time/exchange", Own: true, In: in}, &t)
	if err != nil {
		return told(err)
	}
	return q.Wrote(t.ModifyIndex, struct {
		Token *wireToken
		Index uint64
	}{show(&t), t.ModifyIndex})
}

// showList answers with a list, by pages where they are asked for.
func showList[T any](q *request, index uint64, items func(func(T) bool), name func(T) string) error {
	list, err := nomadrows.List(q, nomadrows.Listing[T]{Items: items, Name: name, Show: func(t T) any { return t }})
	if err != nil {
		return err
	}
	return q.Told(index, list)
}

// names are the names of links.
func names(links []link) (out []string) {
	for _, l := range links {
		out = append(out, l.Name)
	}
	slices.Sort(out)
	return out
}
