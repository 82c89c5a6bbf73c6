package consulapi

import (
	"iter"
	"net/http"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
)

const kvPattern = "/v1/kv/"

var errMissingKey = answer.Invalidf("Missing key name")

func kvGet(q *request) error {
	if q.q != "" {
		if q.q.Has("since") {
			if !q.q.Has("recurse") {
				return errSinceAlone
			}
			return kvSince(q)
		}
		if q.q.Has("recurse") {
			return kvRecurse(q)
		}
		if q.q.Has("keys") {
			return kvKeys(q)
		}
	}
	key := q.rest
	if key == "" {
		return errMissingKey
	}
	if err := q.allow(acl.Key, key, acl.Read); err != nil {
		return err
	}
	st, err := q.read(registry.Subject{Topic: registry.TopicKV, Key: key},
		func(s *catalog.State) uint64 { return s.KVKeyIndex(key) })
	if err != nil {
		return err
	}
	p := st.KV(key)
	if p == nil {
		return q.replyNothing()
	}
	if q.q != "" && q.q.Has("raw") {
		return q.replyRaw(p)
	}
	b := append(q.buffer(), '[')
	b = answer.AppendKVPair(b, p)
	return q.replyScratch(append(b, ']'))
}

// replyNothing is the 404 of the KV store: no body, all headers.
func (q *request) replyNothing() error {
	q.tellFiltered()
	q.w.WriteHeader(http.StatusNotFound)
	return nil
}

var (
	rawType = []string{"text/plain"}
	noSniff = []string{"nosniff"}
	sandbox = []string{"sandbox"}
)

func (q *request) replyRaw(p *catalog.KVPair) error {
	h := q.w.Header()
	h["X-Content-Type-Options"] = noSniff
	h["Content-Security-Policy"] = sandbox
	httpx.Write(q.w, q.r, http.StatusOK, rawType, p.Value)
	return nil
}

// prefix is the part that the two listings share.
func (q *request) prefix() (*catalog.State, uint64, error) {
	prefix := q.rest
	if q.api.cfg.KeyListPolicy { // otherwise the list is filtered alone
		if err := q.allow(acl.Key, prefix, acl.List); err != nil {
			return nil, 0, err
		}
	}
	index := func(s *catalog.State) uint64 { return s.KVPrefixIndex(prefix) }
	st, err := q.read(registry.Subject{Topic: registry.TopicKVPrefix, Key: prefix}, index)
	if err != nil {
		return nil, 0, err
	}
	return st, index(st), nil
}

// visible yields the pairs under the prefix that the caller may read.
func (q *request) visible(st *catalog.State) iter.Seq[*catalog.KVPair] {
	return func(yield func(*catalog.KVPair) bool) {
		for p := range st.KVPrefix(q.rest) {
			if q.sees(acl.Key, p.Key) && !yield(p) {
				return
			}
		}
	}
}

func kvRecurse(q *request) error {
	st, index, err := q.prefix()
	if err != nil {
		return err
	}
	any := false
	for range q.visible(st) {
		any = true
		break
	}
	if !any {
		return q.replyNothing()
	}
	encode := func(b []byte) []byte {
		b = append(b, '[')
		for p := range q.visible(st) {
			b = answer.AppendKVPair(b, p)
			b = append(b, ',')
		}
		b[len(b)-1] = ']'
		return b
	}
	if q.block.Index > 0 { // many may watch one prefix
		return q.replyShared("kv-recurse", index, encode)
	}
	return q.replyScratch(encode(q.buffer()))
}

func kvKeys(q *request) error {
	st, _, err := q.prefix()
	if err != nil {
		return err
	}
	separator, ok := q.q.Get("separator")
	if !ok {
		separator = q.q.Value("seperator")
	}
	b := append(q.buffer(), '[')
	count, last := 0, ""
	for p := range q.visible(st) {
		key := p.Key
		if separator != "" {
			if i := strings.Index(key[len(q.rest):], separator); i >= 0 {
				key = key[:len(q.rest)+i+len(separator)]
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
	if count == 0 && q.rest != "" {
		return q.replyNothing()
	}
	return q.replyScratch(append(b, ']'))
}

// kvTerms reads the parameters that decide the verb of a write.
type kvTerms struct {
	flags, cas       uint64
	hasCAS           bool
	acquire, release string
}

func (q *request) kvTerms() (t kvTerms, err error) {
	conflicts := 0
	if v, ok := q.q.Get("flags"); ok {
		if t.flags, err = strconv.ParseUint(v, 10, 64); err != nil {
			return t, answer.Invalidf("Invalid flags %q", v)
		}
	}
	if v, ok := q.q.Get("cas"); ok {
		if t.cas, err = strconv.ParseUint(v, 10, 64); err != nil {
			return t, answer.Invalidf("Invalid cas %q", v)
		}
		t.hasCAS = true
		conflicts++
	}
	acquire, hasAcquire := q.q.Get("acquire")
	release, hasRelease := q.q.Get("release")
	if t.acquire = acquire; hasAcquire {
		conflicts++
	}
	if t.release = release; hasRelease {
		conflicts++
	}
	if conflicts > 1 {
		return t, answer.Invalidf("Conflicting flags: %s", q.r.URL.RawQuery)
	}
	if hasAcquire && acquire == "" || hasRelease && release == "" {
		return t, answer.Invalidf("Missing session")
	}
	return t, nil
}

func kvPut(q *request) error {
	key := q.rest
	if key == "" {
		return errMissingKey
	}
	if err := q.allow(acl.Key, key, acl.Write); err != nil {
		return err
	}
	var terms kvTerms
	if q.q != "" {
		var err error
		if terms, err = q.kvTerms(); err != nil {
			return err
		}
	}
	value, err := q.body(q.api.cfg.Limits.KVValueBytes)
	if err != nil {
		return err
	}
	cmd := &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: value, Flags: terms.flags}}
	switch {
	case terms.hasCAS:
		cmd.Verb, cmd.Pair.ModifyIndex = catalog.KVCAS, terms.cas
	case terms.acquire != "":
		cmd.Verb, cmd.Pair.Session = catalog.KVLock, terms.acquire
	case terms.release != "":
		cmd.Verb, cmd.Pair.Session = catalog.KVUnlock, terms.release
	}
	return q.applyBool(cmd)
}

// applyBool proposes a command and answers whether it took effect.
func (q *request) applyBool(cmd catalog.Command) error {
	q.api.requests.Add(1)
	res, err := q.api.cfg.Registry.Apply(q.r.Context(), cmd)
	if err != nil {
		return err
	}
	if res.Err != nil {
		return answer.Refused(res.Err)
	}
	return q.replyBool(res.OK)
}

func kvDelete(q *request) error {
	key := q.rest
	recurse := q.q != "" && q.q.Has("recurse")
	if key == "" && !recurse {
		return errMissingKey
	}
	right := q.allow
	if recurse {
		right = q.allowBelow
	}
	if err := right(acl.Key, key, acl.Write); err != nil {
		return err
	}
	cmd := &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: key}}
	v, hasCAS := q.q.Get("cas")
	switch {
	case recurse && hasCAS:
		return answer.Invalidf("Conflicting flags: %s", q.r.URL.RawQuery)
	case recurse:
		cmd.Verb = catalog.KVDeleteTree
	case hasCAS:
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return answer.Invalidf("Invalid cas %q", v)
		}
		cmd.Verb, cmd.Pair.ModifyIndex = catalog.KVDeleteCAS, n
	}
	return q.applyBool(cmd)
}
