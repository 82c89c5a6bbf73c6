package registry

import (
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
)

// wake tells the waiters of every subject that the changes touch.
func (w *watching) wake(c *catalog.Changes) {
	if w.waiters.Len() == 0 {
		return
	}
	wake := func(t Topic, key string) { w.waiters.Wake(Subject{t, key}) }
	lower := strings.ToLower
	w.wakeKV(c.KV)
	for _, t := range c.Names {
		wake(TopicService, t.Name)
	}
	if len(c.Names)+len(c.Nodes)+len(c.Checks) > 0 || slices.ContainsFunc(c.Records, isConfigEntry) {
		wake(TopicCatalog, "")
	}
	if c.ServiceList {
		wake(TopicServices, "")
	}
	if len(c.Nodes) > 0 {
		wake(TopicNodes, "")
	}
	for i := range c.Nodes {
		node := lower(either(c.Nodes[i]).Name)
		wake(TopicNode, node)
		wake(TopicNodeChecks, node) // a node that came or went has another index there
	}
	for i := range c.Services {
		wake(TopicNode, lower(either(c.Services[i]).Node))
		for _, s := range []*catalog.Service{c.Services[i].Before, c.Services[i].After} {
			if s != nil {
				wake(TopicServiceChecks, lower(s.Name))
			}
		}
	}
	if len(c.Checks) > 0 {
		wake(TopicChecks, "")
	}
	for i := range c.Checks {
		node := lower(either(c.Checks[i]).Node)
		wake(TopicNode, node)
		wake(TopicNodeChecks, node)
		for _, check := range []*catalog.Check{c.Checks[i].Before, c.Checks[i].After} {
			if check != nil && check.ServiceName != "" {
				wake(TopicServiceChecks, lower(check.ServiceName))
			}
		}
	}
	if len(c.Sessions) > 0 {
		wake(TopicSessions, "")
	}
	for i := range c.Sessions {
		wake(TopicSession, either(c.Sessions[i]).ID)
	}
	for i := range c.Records {
		record := either(c.Records[i])
		w.waiters.Wake(RecordsSubject(record.Kind))
		w.waiters.Wake(RecordSubject(record.Kind, record.Key))
	}
}

// wakeKV costs one lookup per key and one per watched length of prefix.
func (w *watching) wakeKV(list []catalog.Change[catalog.KVPair]) {
	lengths := w.prefixes.Watched()
	for i := range list {
		key := kvKey(&list[i])
		w.waiters.Wake(Subject{TopicKV, key})
		for _, n := range lengths {
			if n > len(key) {
				break
			}
			w.waiters.Wake(Subject{TopicKVPrefix, key[:n]})
		}
	}
}

func isConfigEntry(c catalog.Change[catalog.Record]) bool {
	return either(c).Kind == catalog.RecordConfigEntry
}

// either is the object after the change, or before when it is gone.
func either[T any](c catalog.Change[T]) *T {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

func kvKey(c *catalog.Change[catalog.KVPair]) string { return either(*c).Key }
