package kv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// defaultMaxVersions are kept where neither path nor mount say a number.
const defaultMaxVersions = 10

// trimmedAtOnce bounds what one write takes away after the number of versions was lowered; the next go on.
const trimmedAtOnce = 64

// head is a path's first record. Invariant: rows exist for Oldest..Current and for nothing else, once Current > 0.
type head struct {
	Current     int               `json:"current_version"`
	Oldest      int               `json:"oldest_version"`
	Created     time.Time         `json:"created_time"`
	Updated     time.Time         `json:"updated_time"`
	MaxVersions int               `json:"max_versions,omitempty"`
	CASRequired bool              `json:"cas_required,omitempty"`
	DeleteAfter time.Duration     `json:"delete_version_after,omitempty"`
	Custom      map[string]string `json:"custom_metadata,omitempty"`

	Meta            int  `json:"current_metadata_version,omitempty"` // counts writes of the settings above
	MetaCASRequired bool `json:"metadata_cas_required,omitempty"`
}

// row is one version.
type row struct {
	Created   time.Time       `json:"created_time"`
	Deleted   time.Time       `json:"deletion_time,omitzero"`
	Destroyed bool            `json:"destroyed,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

func (v *row) readable(now time.Time) bool {
	return !v.Destroyed && (v.Deleted.IsZero() || v.Deleted.After(now))
}

func headKey(path string) string { return "meta/" + path }

// rowKey names a version by its path's hash: a path may have others below itself, which would mix with numbers.
func rowKey(path string, version int) string {
	sum := sha256.Sum256([]byte(path))
	key := make([]byte, 0, 4+32+1+10)
	key = append(hex.AppendEncode(append(key, "ver/"...), sum[:16]), "/0000000000"...)
	for at := len(key) - 1; version > 0; at, version = at-1, version/10 {
		key[at] = byte('0' + version%10)
	}
	return string(key)
}

func (c *call) head() (h head, ok bool, err error) {
	key := headKey(c.path)
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return h, false, err
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		return h, true, unmarshal(key, raw, &h)
	}
	return h, true, damaged(key, h.unpack(raw))
}

func (c *call) row(version int) (v row, ok bool, err error) {
	key := rowKey(c.path, version)
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return v, false, err
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		return v, true, unmarshal(key, raw, &v)
	}
	return v, true, damaged(key, v.unpack(raw))
}

// asked returns the version that a read names, or the newest.
func (c *call) asked() (h head, v row, number int, err error) {
	f, err := c.r.Fields()
	if err != nil {
		return h, v, 0, err
	}
	number = f.Int("version", 0)
	if err := f.Err(); err != nil {
		return h, v, 0, err
	}
	h, ok, err := c.head()
	if err != nil || !ok || h.Current == 0 {
		return h, v, 0, orNotFound(err)
	}
	if number <= 0 {
		number = h.Current
	}
	v, ok, err = c.row(number)
	if err != nil || !ok {
		return h, v, 0, orNotFound(err)
	}
	return h, v, number, nil
}

func (c *call) read() (*secrets.Response, error) {
	h, v, number, err := c.asked()
	if err != nil {
		return nil, err
	}
	data := v.Data
	missing := !v.readable(c.r.Now)
	if missing {
		data = json.RawMessage("null")
	}
	out := append([]byte(`{"data":`), data...)
	out = append(out, `,"metadata":`...)
	out = appendVersion(out, number, &v, h.Custom, true)
	return &secrets.Response{Data: append(out, '}'), Missing: missing}, nil
}

// appendVersion encodes what is told of a version beside its data.
func appendVersion(out []byte, number int, v *row, custom map[string]string, whole bool) []byte {
	out = append(out, `{"created_time":"`...)
	out = v.Created.UTC().AppendFormat(out, time.RFC3339Nano)
	if whole {
		out = append(out, `","custom_metadata":`...)
		if custom == nil {
			out = append(out, "null"...)
		} else {
			text, _ := json.Marshal(custom) // of strings alone: cannot fail
			out = append(out, text...)
		}
		out = append(out, `,"deletion_time":"`...)
	} else {
		out = append(out, `","deletion_time":"`...)
	}
	if !v.Deleted.IsZero() {
		out = v.Deleted.UTC().AppendFormat(out, time.RFC3339Nano)
	}
	out = append(out, `","destroyed":`...)
	out = strconv.AppendBool(out, v.Destroyed)
	if whole {
		out = append(out, `,"version":`...)
		out = strconv.AppendInt(out, int64(number), 10)
	}
	return append(out, '}')
}

func (c *call) write() (*secrets.Response, error) {
	data, options, err := bodyOf(c.r.Body)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 || string(data) == "null" {
		return nil, errkind.New(errkind.Invalid, "no data provided")
	}
	if data[0] != '{' {
		return nil, errkind.New(errkind.Invalid, `field "data": must be an object`)
	}
	h, _, err := c.head()
	if err != nil {
		return nil, err
	}
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	if err := checkCAS(options, h, s); err != nil {
		return nil, err
	}
	return c.add(h, s, data)
}

func checkCAS(options json.RawMessage, h head, s settings) error {
	if len(options) == 0 && !h.CASRequired && !s.CASRequired {
		return nil
	}
	f, err := secrets.ParseFields(options)
	if err != nil {
		return errkind.New(errkind.Invalid, `field "options": must be an object`)
	}
	cas := f.Int("cas", 0)
	switch {
	case f.Err() != nil:
		return f.Err()
	case !f.Has("cas") && (h.CASRequired || s.CASRequired):
		return errkind.New(errkind.Invalid, "check-and-set parameter required for this call")
	case f.Has("cas") && cas != h.Current:
		return errkind.New(errkind.Invalid, "check-and-set parameter did not match the current version")
	}
	return nil
}

// add stores the next version and takes away those above the number that is kept.
func (c *call) add(h head, s settings, data json.RawMessage) (*secrets.Response, error) {
	now := c.r.Now.UTC()
	if h.Created.IsZero() {
		h.Created = now
	}
	h.Updated = now
	h.Current++
	h.Oldest = max(h.Oldest, 1)
	v := row{Created: now, Data: data}
	if after := shorter(h.DeleteAfter, s.DeleteAfter); after > 0 {
		v.Deleted = now.Add(after)
	}
	ops := make([]storage.Op, 0, 3)
	for keep := c.kept(h, s); h.Current-h.Oldest+1 > keep && len(ops) < trimmedAtOnce; h.Oldest++ {
		ops = append(ops, storage.Delete(rowKey(c.path, h.Oldest)))
	}
	ops = append(ops, putHead(c.path, &h), putRow(c.path, h.Current, &v))
	return &secrets.Response{Data: appendVersion(make([]byte, 0, 192), h.Current, &v, h.Custom, true), Ops: ops}, nil
}

func (c *call) kept(h head, s settings) int {
	switch {
	case h.MaxVersions > 0:
		return h.MaxVersions
	case s.MaxVersions > 0:
		return s.MaxVersions
	}
	return defaultMaxVersions
}

// shorter is the lesser of two times of which 0 is none; a negative one of the path is "not at all".
func shorter(path, mount time.Duration) time.Duration {
	if path == 0 || (mount > 0 && mount < path) {
		return mount
	}
	return path
}
