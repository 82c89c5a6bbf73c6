package wrapping

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/quotas"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
	"corbel.dev/corbel/secrets/tokens"
)

const wrappedAccessor = "wrapped_accessor" // in the metadata of a wrapping token

var errNoWrapping = errkind.New(errkind.Invalid, "wrapping token is not valid or does not exist")

// Wrapping puts answers where one reader finds them. It has no state but the tokens' tree and the cubbyholes.
type Wrapping struct {
	Records *sealed.Store
	Tokens  *tokens.Tokens
	Quotas  *quotas.Quotas
	Flying  *flight.List
	// authorise judges a request by its own token, as the request line does.
	Authorise func(ctx context.Context, t *task.Task, special engine.Special) error
}

// Rows are the paths of sys/ that it answers.
func (w *Wrapping) Rows() []system.Row {
	return []system.Row{
		{Path: "wrapping/wrap", InNamespaces: true, Write: w.wrapRequest},
		{Path: "wrapping/unwrap", InNamespaces: true, Write: w.unwrap},
		{Path: "wrapping/rewrap", InNamespaces: true, Write: w.rewrap},
		{Path: "wrapping/lookup", InNamespaces: true, Read: w.wrappingLookup, Write: w.wrappingLookup},
	}
}

// wrap gives the operations that store an answer for one reader.
func (w *Wrapping) wrap(t *task.Task, answer []byte, ttl time.Duration, path, accessor string) (*task.WrapInfo,
	[]storage.Op, error) {
	tok := &token.Token{Origin: token.Origin{Path: t.Tables.Path() + path}, DisplayName: "response-wrapping",
		Policies: []string{tables.WrappingPolicy},
		Lifetime: secrets.Lifetime{ExplicitMax: ttl}, Uses: 1}
	if accessor != "" {
		tok.Meta = map[string]string{wrappedAccessor: accessor}
	}
	tok.Begin(t.Now, ttl, token.Limits{})
	info := &task.WrapInfo{Token: token.NewID() + t.Tables.Suffix(), TTL: ttl, Created: tok.Created, Path: path,
		Wrapped: accessor}
	ops := t.Tables.Book.MakeIn(info.Token, t.Tables.TokenSpace(), tok)
	if err := w.Quotas.TakeToken(t, tok); err != nil {
		return nil, nil, err
	}
	info.Accessor = tok.Accessor
	op, err := storage.PutJSON(responseKey(t.Tables, tok.Hash), map[string]string{"response": string(answer)})
	return info, append(ops, op), err
}

func responseKey(st *tables.Tables, hash string) string {
	return st.Mounts.Get("cubbyhole/").Prefix() + hash + "/response"
}

// Wrapped makes the reply that stands for another, where the request asks for it and there is something to wrap.
func (w *Wrapping) Wrapped(t *task.Task, r *task.Reply) (*task.Reply, []storage.Op, error) {
	if t.Wrap <= 0 || r.Wrap != nil || r.Raw != nil || r.Missing || (r.Data == nil && r.Token == nil && r.Lease == nil) {
		return r, nil, nil
	}
	accessor := ""
	if r.Token != nil {
		accessor = r.Token.Accessor
	}
	info, ops, err := w.wrap(t, r.Envelope(nil, t.Request, false), t.Wrap, t.Path, accessor)
	return &task.Reply{Response: &secrets.Response{}, Wrap: info, Mount: t.Entry}, ops, err
}

// wrapRequest takes an object to be wrapped.
func (w *Wrapping) wrapRequest(c *system.Call) (any, error) {
	if c.Wrap <= 0 {
		return nil, errkind.New(errkind.Invalid, "endpoint requires response wrapping to be used: set X-Vault-Wrap-TTL")
	}
	if body := bytes.TrimSpace(c.Body); len(body) > 0 && body[0] == '{' {
		return json.RawMessage(body), nil
	}
	return json.RawMessage("{}"), nil
}

// wrapping finds the wrapping token that a request is about: the one in its body, or its own. Who
// names one in the body beside a token of their own needs the right to.
func (w *Wrapping) wrapping(c *system.Call, judge bool) (*token.Token, error) {
	id := c.F.String("token")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if judge && id != "" && c.Token != "" && id != c.Token {
		if err := w.Authorise(c, c.Task, engine.Special{}); err != nil {
			return nil, err
		}
	}
	if id == "" {
		id = c.Token
	}
	return w.usable(c, c.Tables.TokenName(id))
}

func (w *Wrapping) usable(c *system.Call, hash string) (*token.Token, error) {
	tok, err := c.Tables.Book.Find(c, hash)
	if err == nil && (tok == nil || !slices.Equal(tok.Policies, []string{tables.WrappingPolicy}) || tok.Expired(c.Now) ||
		tok.Uses <= 0 || !c.Tables.Sees(hash)) {
		err = errNoWrapping
	}
	return tok, err
}

// open ends a wrapping token, and with it whatever is made of its answer, as one commit, and gives the answer.
func (w *Wrapping) open(c *system.Call, tok *token.Token,
	with func(answer []byte) ([]storage.Op, error)) (answer []byte, err error) {
	defer w.Tokens.LockTree()() // nobody else uses or ends it
	if tok, err = w.usable(c, tok.Hash); err != nil {
		return nil, err
	}
	raw, ok, err := w.Records.Get(c, responseKey(c.Tables, tok.Hash))
	if err != nil {
		return nil, err
	}
	var held struct{ Response string }
	if !ok || json.Unmarshal(raw, &held) != nil {
		return nil, errNoWrapping
	}
	more, err := with([]byte(held.Response))
	if err != nil {
		return nil, err
	}
	// it may make no tokens
	_, err = w.Tokens.CommitEnd(c, w.Flying.Bulk(), c.Tables, append(token.End(tok), more...), []string{tok.Hash}, true)
	return []byte(held.Response), err
}

func (w *Wrapping) unwrap(c *system.Call) (any, error) {
	tok, err := w.wrapping(c, true)
	if err != nil {
		return nil, err
	}
	answer, err := w.open(c, tok, func([]byte) ([]storage.Op, error) { return nil, nil })
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/json", Body: answer}}, err
}

func (w *Wrapping) rewrap(c *system.Call) (any, error) {
	tok, err := w.wrapping(c, true)
	if err != nil {
		return nil, err
	}
	_, err = w.open(c, tok, func(answer []byte) (ops []storage.Op, err error) {
		c.Left.Wrap, ops, err = w.wrap(c.Task, answer, tok.TTL, strings.TrimPrefix(tok.Path, c.Tables.Path()),
			tok.Meta[wrappedAccessor])
		return ops, err
	})
	return &secrets.Response{}, err
}

func (w *Wrapping) wrappingLookup(c *system.Call) (any, error) {
	tok, err := w.wrapping(c, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"creation_ttl": task.Seconds(tok.TTL), "creation_time": tok.Created.Format(time.RFC3339Nano),
		"creation_path": strings.TrimPrefix(tok.Path, c.Tables.Path())}, nil
}
