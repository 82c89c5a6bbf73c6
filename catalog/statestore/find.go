package statestore

import (
	"strings"

	"corbel.dev/corbel/core/table"
)

// The lookups of single entries, each nil when there is none. Keys are in lower case.

func findNode(t table.Table[*nodeEntry], key string) *nodeEntry {
	e, _ := t.Find(func(e *nodeEntry) int { return strings.Compare(key, e.key) })
	return e
}

func findNodeID(t table.Table[*nodeEntry], key string) *nodeEntry {
	e, _ := t.Find(func(e *nodeEntry) int { return strings.Compare(key, e.idKey) })
	return e
}

func findService(t table.Table[*serviceEntry], node, id string) *serviceEntry {
	e, _ := t.Find(func(e *serviceEntry) int { return compare2(node, e.nodeKey, id, e.ID) })
	return e
}

func findName(t table.Table[*nameEntry], key string) *nameEntry {
	e, _ := t.Find(func(e *nameEntry) int { return strings.Compare(key, e.key) })
	return e
}

func findCheck(t table.Table[*checkEntry], node, id string) *checkEntry {
	e, _ := t.Find(func(e *checkEntry) int { return compare2(node, e.nodeKey, id, e.ID) })
	return e
}
