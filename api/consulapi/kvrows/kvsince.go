package kvrows

import (
	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/registry"
)

func (kr *Rows) kvSince(q *rows.Request) error {
	prefix := q.Rest
	if kr.KeyListPolicy {
		if err := q.Allow(acl.Key, prefix, acl.List); err != nil {
			return err
		}
	}
	s, err := rows.ReadChanges(q, registry.Subject{Topic: registry.TopicKVPrefix, Key: prefix},
		func(st *catalog.State) uint64 { return st.KVPrefixIndex(prefix) })
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
