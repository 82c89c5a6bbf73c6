package keeper

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

const wrappedAccessor = "wrapped_accessor" // in the metadata of a wrapping token

var errNoWrapping = errkind.New(errkind.Invalid, "wrapping token is not valid or does not exist")

// wrap gives the operations that store an answer for one reader.
func (k *Keeper) wrap(t *task.Task, answer []byte, ttl time.Duration, path, accessor string) (*task.WrapInfo, []storage.Op, error) {
	tok := &token.Token{Path: path, DisplayName: "response-wrapping", Policies: []string{tables.WrappingPolicy}, ExplicitMax: ttl, Uses: 1}
	if accessor != "" {
		tok.Meta = map[string]string{wrappedAccessor: accessor}
	}
	tok.Begin(t.Now, ttl, token.Limits{})
	info := &task.WrapInfo{Token: token.NewID(), TTL: ttl, Created: tok.Created, Path: path, Wrapped: accessor}
	ops := t.Tables.Book.Make(info.Token, tok)
	if err := k.takeTokenRoom(t, tok); err != nil {
		return nil, nil, err
	}
	info.Accessor = tok.Accessor
	op, err := storage.PutJSON(responseKey(t.Tables, tok.Hash), map[string]string{"response": string(answer)})
	return info, append(ops, op), err
}

func responseKey(st *tables.Tables, hash string) string {
	return st.Mounts.Get("cubbyhole/").Prefix() + hash + "/response"
}

// wrapped makes the reply that stands for another, where the request asks for it and there is something to wrap.
func (k *Keeper) wrapped(t *task.Task, r *task.Reply) (*task.Reply, []storage.Op, error) {
	if t.Wrap <= 0 || r.Wrap != nil || r.Raw != nil || r.Missing || (r.Data == nil && r.Token == nil && r.Lease == nil) {
		return r, nil, nil
	}
	accessor := ""
	if r.Token != nil {
		accessor = r.Token.Accessor
	}
	info, ops, err := k.wrap(t, r.Envelope(nil, t.Request, false), t.Wrap, t.Path, accessor)
	return &task.Reply{Response: &secrets.Response{}, Wrap: info, Mount: t.Entry}, ops, err
}

// wrapRequest takes an object to be wrapped.
func (s *system) wrapRequest(c *sysCall) (any, error) {
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
func (s *system) wrapping(c *sysCall, judge bool) (*token.Token, error) {
	id := c.f.String("token")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if judge && id != "" && c.Token != "" && id != c.Token {
		if err := s.k.authorise(c, c.Task, engine.Special{}); err != nil {
			return nil, err
		}
	}
	if id == "" {
		id = c.Token
	}
	return s.usable(c, c.Tables.Book.Hash(id))
}

func (s *system) usable(c *sysCall, hash string) (*token.Token, error) {
	tok, err := c.Tables.Book.Find(c, hash)
	if err == nil && (tok == nil || !slices.Equal(tok.Policies, []string{tables.WrappingPolicy}) || tok.Expired(c.Now) || tok.Uses <= 0) {
		err = errNoWrapping
	}
	return tok, err
}

// open ends a wrapping token, and with it whatever is made of its answer, as one commit, and gives the answer.
func (s *system) open(c *sysCall, tok *token.Token, with func(answer []byte) ([]storage.Op, error)) (answer []byte, err error) {
	s.k.tree.Lock() // nobody else uses or ends it
	defer s.k.tree.Unlock()
	if tok, err = s.usable(c, tok.Hash); err != nil {
		return nil, err
	}
	raw, ok, err := s.k.records.Get(c, responseKey(c.Tables, tok.Hash))
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
	_, err = s.k.commitEnd(c, s.k.flying.Bulk(), c.Tables, append(token.End(tok), more...), []string{tok.Hash}, true) // it may make no tokens
	return []byte(held.Response), err
}

func (s *system) unwrap(c *sysCall) (any, error) {
	tok, err := s.wrapping(c, true)
	if err != nil {
		return nil, err
	}
	answer, err := s.open(c, tok, func([]byte) ([]storage.Op, error) { return nil, nil })
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/json", Body: answer}}, err
}

func (s *system) rewrap(c *sysCall) (any, error) {
	tok, err := s.wrapping(c, true)
	if err != nil {
		return nil, err
	}
	_, err = s.open(c, tok, func(answer []byte) (ops []storage.Op, err error) {
		c.Left.Wrap, ops, err = s.k.wrap(c.Task, answer, tok.TTL, tok.Path, tok.Meta[wrappedAccessor])
		return ops, err
	})
	return &secrets.Response{}, err
}

func (s *system) wrappingLookup(c *sysCall) (any, error) {
	tok, err := s.wrapping(c, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"creation_ttl": task.Seconds(tok.TTL), "creation_time": tok.Created.Format(time.RFC3339Nano), "creation_path": tok.Path}, nil
}
