package registry

import (
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// What an event's item says.
const (
	itemInstance = iota + 1 // an instance is now like this
	itemInstanceGone
	itemNode
	itemNodeGone
	itemKV
	itemKVGone
)

// Item is one object of an event: how it is now, or that it is gone. Exactly
// one of Service, Node and KV is set.
type Item struct {
	Gone bool
	// Service is an instance with its node and all checks that count for it. When
	// Gone, only Service.Node (in lower case) and Service.ID are set.
	Service *catalog.Service
	Checks  []*catalog.Check
	Node    *catalog.Node   // the instance's node, or the subject itself; when Gone only its Name
	KV      *catalog.KVPair // when Gone only its Key
}

// followPrefix notes a followed length once.
func (w *watching) followPrefix(n int) {
	for _, known := range w.followed.Watched() {
		if known == n {
			return
		}
	}
	w.followed.Add(n)
}

// publish gives each followed subject one event for the batch. Its items are
// as of the batch's last index, each object once.
func (w *watching) publish(next *statestore.State, c *catalog.Changes) {
	if w.streams.Len() == 0 {
		return
	}
	out := drafts{streams: w.streams, bytes: make(map[Subject][]byte)}
	w.publishKV(&out, next, c)
	if w.streams.Followed(Subject{Topic: TopicNodes}) {
		for i := range c.Nodes {
			name := either(c.Nodes[i]).Name
			node := next.Node(name)
			out.add(Subject{Topic: TopicNodes}, func(b []byte) []byte { return appendNode(b, name, node) })
		}
	}
	publishInstances(&out, next, c)
	for subject, b := range out.bytes { // each subject has its own ring: their order means nothing
		w.streams.Publish(subject, topic.Event{Index: next.Index(), Bytes: b})
	}
}

// drafts are the events of one batch in the making.
type drafts struct {
	streams *topic.Streams[Subject]
	bytes   map[Subject][]byte
}

func (d *drafts) add(s Subject, fill func(b []byte) []byte) {
	b, begun := d.bytes[s]
	if !begun && !d.streams.Followed(s) {
		return
	}
	b, mark := pack.Begin(b)
	d.bytes[s] = pack.End(fill(b), mark)
}

func (w *watching) publishKV(out *drafts, next *statestore.State, c *catalog.Changes) {
	lengths := w.followed.Watched()
	for i := range c.KV {
		key := kvKey(&c.KV[i])
		pair := next.KV(key)
		if pair != c.KV[i].After {
			continue // a later change of the batch tells it
		}
		fill := func(b []byte) []byte {
			if pair == nil {
				return pack.String(pack.Uint(b, itemKVGone), key)
			}
			return catalog.AppendKVPair(pack.Uint(b, itemKV), pair)
		}
		out.add(Subject{TopicKV, key}, fill)
		for _, n := range lengths {
			if n > len(key) {
				break
			}
			out.add(Subject{TopicKVPrefix, key[:n]}, fill)
		}
	}
}

type instance struct{ node, id string }

// publishInstances finds the instances that the batch touched, by their own
// registration, their checks, or their node, and tells those who follow a name
// that finds or found them.
func publishInstances(out *drafts, next *statestore.State, c *catalog.Changes) {
	var order []instance
	names := make(map[instance][]string)
	touch := func(s *catalog.Service) {
		at := instance{strings.ToLower(s.Node), s.ID}
		if _, ok := names[at]; !ok {
			order = append(order, at)
		}
		names[at] = append(names[at], strings.ToLower(s.Name), s.ConnectsTo())
	}
	for i := range c.Services {
		if before := c.Services[i].Before; before != nil {
			touch(before)
		}
		if after := c.Services[i].After; after != nil {
			touch(after)
		}
	}
	touchNode := func(name string) {
		for s := range next.ServicesOfNode(name) {
			touch(s)
		}
	}
	for i := range c.Checks {
		check := either(c.Checks[i])
		if check.ServiceID == "" {
			touchNode(check.Node)
		} else if s := next.Service(check.Node, check.ServiceID); s != nil {
			touch(s)
		}
	}
	for i := range c.Nodes {
		touchNode(either(c.Nodes[i]).Name)
	}
	for _, at := range order {
		s := next.Service(at.node, at.id)
		now := ""
		if s != nil {
			now = strings.ToLower(s.Name)
		}
		told := make(map[string]bool, 2)
		for _, name := range names[at] {
			if name == "" || told[name] {
				continue
			}
			told[name] = true
			here := s != nil && (now == name || s.ConnectsTo() == name)
			out.add(Subject{TopicService, name}, func(b []byte) []byte { return appendInstance(b, next, at, s, here) })
		}
	}
}

func appendNode(b []byte, name string, node *catalog.Node) []byte {
	if node == nil {
		return pack.String(pack.Uint(b, itemNodeGone), name)
	}
	return catalog.AppendNode(pack.Uint(b, itemNode), node)
}

func appendInstance(b []byte, st *statestore.State, at instance, s *catalog.Service, here bool) []byte {
	if !here {
		return pack.String(pack.String(pack.Uint(b, itemInstanceGone), at.node), at.id)
	}
	b = pack.Uint(b, itemInstance)
	b = catalog.AppendNode(b, st.Node(s.Node))
	b = catalog.AppendService(b, s)
	for check := range st.NodeChecks(s.Node) {
		b = catalog.AppendCheck(b, check)
	}
	for check := range st.InstanceChecks(s.Node, s.ID) {
		b = catalog.AppendCheck(b, check)
	}
	return b
}

// DecodeEvent reads the bytes of an event. Damage gives an error of kind Corrupt.
func DecodeEvent(b []byte) ([]Item, error) {
	var items []Item
	r := pack.Read(b)
	for r.More() {
		in := r.Record()
		item := Item{}
		switch kind := in.Uint(); kind {
		case itemInstance:
			item.Node, item.Service = catalog.ReadNode(in), catalog.ReadService(in)
			for in.More() {
				item.Checks = append(item.Checks, catalog.ReadCheck(in))
			}
		case itemInstanceGone:
			item.Gone, item.Service = true, &catalog.Service{Node: in.String(), ID: in.String()}
		case itemNode, itemNodeGone:
			if item.Gone = kind == itemNodeGone; item.Gone {
				item.Node = &catalog.Node{Name: in.String()}
			} else {
				item.Node = catalog.ReadNode(in)
			}
		case itemKV, itemKVGone:
			if item.Gone = kind == itemKVGone; item.Gone {
				item.KV = &catalog.KVPair{Key: in.String()}
			} else {
				item.KV = catalog.ReadKVPair(in)
			}
		default:
			continue // of a later version
		}
		r.Merge(in)
		items = append(items, item)
	}
	if r.Err() != nil {
		return nil, errkind.E(errkind.Corrupt, "decode catalog event", r.Err())
	}
	return items, nil
}
