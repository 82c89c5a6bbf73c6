package kvrows

import (
	"iter"
	"net/http"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
)

var errMissingKey = answer.Invalidf("Missing key name")

func (kr *Rows) kvGet(q *rows.Request) error {
	if q.Query != "" {
		if q.Query.Has("since") {
			if !q.Query.Has("recurse") {
				return rows.ErrSinceAlone
			}
			return kr.kvSince(q)
		}
		if q.Query.Has("recurse") {
			return kr.kvRecurse(q)
		}
		if q.Query.Has("keys") {
			return kr.kvKeys(q)
		}
	}
	key := q.Rest
	if key == "" {
		return errMissingKey
	}
	if err := q.Allow(acl.Key, key, acl.Read); err != nil {
		return err
	}
	st, err := q.Read(registry.Subject{Topic: registry.TopicKV, Key: key},
		func(s *statestore.State) uint64 { return s.KVKeyIndex(key) })
	if err != nil {
		return err
	}
	p := st.KV(key)
	if p == nil {
		return replyNothing(q)
	}
	if q.Query != "" && q.Query.Has("raw") {
		return replyRaw(q, p)
	}
	b := append(q.Buffer(), '[')
	b = answer.AppendKVPair(b, p)
	return q.ReplyScratch(append(b, ']'))
}

// replyNothing is the 404 of the KV store: no body, all headers.
func replyNothing(q *rows.Request) error {
	q.TellFiltered()
	q.W.WriteHeader(http.StatusNotFound)
	return nil
}

var (
	noSniff = []string{"nosniff"}
	sandbox = []string{"sandbox"}
)

func replyRaw(q *rows.Request, p *catalog.KVPair) error {
	h := q.W.Header()
	h["X-Content-Type-Options"] = noSniff
	h["Content-Security-Policy"] = sandbox
	httpx.Write(q.W, q.R, http.StatusOK, rows.RawType, p.Value)
	return nil
}

// prefix is the part that the two listings share.
func (kr *Rows) prefix(q *rows.Request) (*statestore.State, uint64, error) {
	prefix := q.Rest
	if kr.KeyListPolicy { // otherwise the list is filtered alone
		if err := q.Allow(acl.Key, prefix, acl.List); err != nil {
			return nil, 0, err
		}
	}
	index := func(s *statestore.State) uint64 { return s.KVPrefixIndex(prefix) }
	st, err := q.Read(registry.Subject{Topic: registry.TopicKVPrefix, Key: prefix}, index)
	if err != nil {
		return nil, 0, err
	}
	return st, index(st), nil
}

// visible yields the pairs under the prefix that the caller may read.
func visible(q *rows.Request, st *statestore.State) iter.Seq[*catalog.KVPair] {
	return func(yield func(*catalog.KVPair) bool) {
		for p := range st.KVPrefix(q.Rest) {
			if q.Sees(acl.Key, p.Key) && !yield(p) {
				return
			}
		}
	}
}

func (kr *Rows) kvRecurse(q *rows.Request) error {
	st, index, err := kr.prefix(q)
	if err != nil {
		return err
	}
	any := false
	for range visible(q, st) {
		any = true
		break
	}
	if !any {
		return replyNothing(q)
	}
	encode := func(b []byte) []byte {
		b = append(b, '[')
		for p := range visible(q, st) {
			b = answer.AppendKVPair(b, p)
			b = append(b, ',')
		}
		b[len(b)-1] = ']'
		return b
	}
	if q.Block.Index > 0 { // many may watch one prefix
		return q.ReplyShared("kv-recurse", index, encode)
	}
	return q.ReplyScratch(encode(q.Buffer()))
}

func (kr *Rows) kvKeys(q *rows.Request) error {
	st, _, err := kr.prefix(q)
	if err != nil {
		return err
	}
	separator, ok := q.Query.Get("separator")
	if !ok {
		separator = q.Query.Value("seperator")
	}
	b := append(q.Buffer(), '[')
	count, last := 0, ""
	for p := range visible(q, st) {
		key := p.Key
		if separator != "" {
			if i := strings.Index(key[len(q.Rest):], separator); i >= 0 {
				key = key[:len(q.Rest)+i+len(separator)]
			}
			if count > 0 && key == last { // equal keys are neighbours: the order is by bytes
				continue
			}
		}
		if count > 0 {
			b = append(b, ',')
		}
		b = answer.AppendString(b, key)
		last = key
		count++
	}
	if count == 0 && q.Rest != "" {
		return replyNothing(q)
	}
	return q.ReplyScratch(append(b, ']'))
}

// kvTerms reads the parameters that decide the verb of a write.
type kvTerms struct {
	flags, cas       uint64
	hasCAS           bool
	acquire, release string
}

func readTerms(q *rows.Request) (t kvTerms, err error) {
	conflicts := 0
	if v, ok := q.Query.Get("flags"); ok {
		if t.flags, err = strconv.ParseUint(v, 10, 64); err != nil {
			return t, answer.Invalidf("Invalid flags %q", v)
		}
	}
	if v, ok := q.Query.Get("cas"); ok {
		if t.cas, err = strconv.ParseUint(v, 10, 64); err != nil {
			return t, answer.Invalidf("Invalid cas %q", v)
		}
		t.hasCAS = true
		conflicts++
	}
	acquire, hasAcquire := q.Query.Get("acquire")
	release, hasRelease := q.Query.Get("release")
	if t.acquire = acquire; hasAcquire {
		conflicts++
	}
	if t.release = release; hasRelease {
		conflicts++
	}
	if conflicts > 1 {
		return t, answer.Invalidf("Conflicting flags: %s", q.R.URL.RawQuery)
	}
	if hasAcquire && acquire == "" || hasRelease && release == "" {
		return t, answer.Invalidf("Missing session")
	}
	return t, nil
}

func kvPut(q *rows.Request) error {
	key := q.Rest
	if key == "" {
		return errMissingKey
	}
	if err := q.Allow(acl.Key, key, acl.Write); err != nil {
		return err
	}
	var terms kvTerms
	if q.Query != "" {
		var err error
		if terms, err = readTerms(q); err != nil {
			return err
		}
	}
	value, err := q.Body(q.Limits.KVValueBytes)
	if err != nil {
		return err
	}
	cmd := &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: value, Flags: terms.flags,
		By: rows.Author(q.Grant, q.Clock.Now())}}
	switch {
	case terms.hasCAS:
		cmd.Verb, cmd.Pair.ModifyIndex = catalog.KVCAS, terms.cas
	case terms.acquire != "":
		cmd.Verb, cmd.Pair.Session = catalog.KVLock, terms.acquire
	case terms.release != "":
		cmd.Verb, cmd.Pair.Session = catalog.KVUnlock, terms.release
	}
	return applyBool(q, cmd)
}

func kvDelete(q *rows.Request) error {
	key := q.Rest
	recurse := q.Query != "" && q.Query.Has("recurse")
	if key == "" && !recurse {
		return errMissingKey
	}
	right := q.Allow
	if recurse {
		right = q.AllowBelow
	}
	if err := right(acl.Key, key, acl.Write); err != nil {
		return err
	}
	cmd := &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: key}}
	v, hasCAS := q.Query.Get("cas")
	switch {
	case recurse && hasCAS:
		return answer.Invalidf("Conflicting flags: %s", q.R.URL.RawQuery)
	case recurse:
		cmd.Verb = catalog.KVDeleteTree
	case hasCAS:
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return answer.Invalidf("Invalid cas %q", v)
		}
		cmd.Verb, cmd.Pair.ModifyIndex = catalog.KVDeleteCAS, n
	}
	return applyBool(q, cmd)
}

// applyBool proposes a command and answers whether it took effect.
func applyBool(q *rows.Request, cmd catalog.Command) error {
	res, err := q.Apply(cmd)
	if err != nil {
		return err
	}
	return q.ReplyBool(res.OK)
}

func (kr *Rows) kvSince(q *rows.Request) error {
	prefix := q.Rest
	if kr.KeyListPolicy {
		if err := q.Allow(acl.Key, prefix, acl.List); err != nil {
			return err
		}
	}
	s, err := rows.ReadChanges(q, registry.Subject{Topic: registry.TopicKVPrefix, Key: prefix},
		func(st *statestore.State) uint64 { return st.KVPrefixIndex(prefix) })
	if err != nil {
		return err
	}
	var changed []*catalog.KVPair
	var gone []string
	if !s.Reset {
		changed, gone = s.State.KVSince(prefix, s.After)
	}
	return s.Reply("kv-since", func(list *answer.List) {
		if s.Reset {
			for p := range visible(q, s.State) {
				list.Bytes = answer.AppendKVPair(list.Next(), p)
			}
		}
		for _, p := range changed {
			if q.Sees(acl.Key, p.Key) {
				list.Bytes = answer.AppendKVPair(list.Next(), p)
			}
		}
	}, func(list *answer.List) {
		for _, key := range gone {
			if q.Sees(acl.Key, key) {
				list.Bytes = answer.AppendString(list.Next(), key)
			}
		}
	})
}
