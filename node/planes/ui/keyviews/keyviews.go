// Package keyviews makes what the web UI shows of the key-value store: a folder (List), and who wrote one key last
// (One). Values do not pass through here. A key that the reader may not read is as one that is not there.
package keyviews

import (
	"context"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// Row is a key, or a folder of them. It implements rowfilter.Row.
type Row struct {
	Key    string `json:"key"`
	Folder bool   `json:"folder"`
	Keys   int    `json:"keys"`
	Bytes  int    `json:"bytes"`
	Index  uint64 `json:"index"`
	At     int64  `json:"at"` // of the newest write, in seconds since 1970; 0 when an older release wrote it
}

func (r Row) Words() []string          { return []string{r.Key} }
func (r Row) Values(_ string) []string { return []string{r.Key} }

// List shows what is directly below prefix=, with all=1 all keys below it.
func List(_ context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	prefix, all := q.Get("prefix"), q.Get("all") != ""
	rows := []Row{}
	for p := range st.KVPrefix(prefix) {
		if !g.Allow(acl.Key, p.Key, acl.Read) {
			continue
		}
		key, folder := p.Key, false
		if at := strings.IndexByte(key[len(prefix):], '/'); at >= 0 && !all {
			key, folder = key[:len(prefix)+at+1], true
		}
		if last := len(rows) - 1; folder && last >= 0 && rows[last].Key == key {
			r := &rows[last]
			r.Keys, r.Bytes = r.Keys+1, r.Bytes+len(p.Value)
			r.Index, r.At = max(r.Index, p.ModifyIndex), max(r.At, p.By.At)
			continue
		}
		rows = append(rows, Row{Key: key, Folder: folder, Keys: 1, Bytes: len(p.Value), Index: p.ModifyIndex,
			At: p.By.At})
	}
	return rowlists.Paged(rows, q, "key"), nil
}

// View says who wrote a key last, and when.
type View struct {
	Index uint64 `json:"index"` // 0 for a key that is not there, or is not shown to whoever asks
	At    int64  `json:"at"`    // in seconds since 1970; 0 when an older release wrote it
	// By is the accessor of a token; empty for the anonymous one, and where access control is off.
	By string `json:"by,omitempty"`
	// Name is the token's description, for those who may read tokens.
	Name string `json:"name,omitempty"`
	// Holder is the session that holds the key's lock.
	Holder string `json:"holder,omitempty"`
}

// One shows one key, of name=, but for its value, which the page reads from the catalog's API.
func One(_ context.Context, g *acl.Grant, st *statestore.State, q url.Values) (any, error) {
	p := st.KV(q.Get("name"))
	if p == nil || !g.Allow(acl.Key, p.Key, acl.Read) {
		return View{}, nil
	}
	v := View{Index: p.ModifyIndex, At: p.By.At, Holder: p.Session}
	if p.By.Accessor != (catalog.Author{}).Accessor {
		v.By = uuid.UUID(p.By.Accessor).String()
		if t := grants.TokenByAccessor(st, v.By); t != nil && g.Allow(acl.ACL, "", acl.Read) {
			v.Name = t.Description
		}
	}
	return v, nil
}
