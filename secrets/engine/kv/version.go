package kv

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	return "ver/" + hex.EncodeToString(sum[:16]) + "/" + fmt.Sprintf("%010d", version)
}

func (c *call) head() (h head, ok bool, err error) {
	key := headKey(c.path)
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return h, false, err
	}
	return h, true, unmarshal(key, raw, &h)
}

func (c *call) row(version int) (v row, ok bool, err error) {
	key := rowKey(c.path, version)
	raw, ok, err := c.view.Get(c, key)
	if err != nil || !ok {
		return v, false, err
	}
	return v, true, unmarshal(key, raw, &v)
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
		text, _ := json.Marshal(custom) // of strings alone: cannot fail; nil is null
		out = append(append(out, text...), `,"deletion_time":"`...)
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
	var body struct {
		Data    json.RawMessage `json:"data"`
		Options json.RawMessage `json:"options"`
	}
	if err := json.Unmarshal(c.r.Body, &body); err != nil {
		return nil, errkind.New(errkind.Invalid, "failed to parse JSON input: an object is expected")
	}
	if len(body.Data) == 0 || string(body.Data) == "null" {
		return nil, errkind.New(errkind.Invalid, "no data provided")
	}
	if body.Data[0] != '{' {
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
	if err := checkCAS(body.Options, h, s); err != nil {
		return nil, err
	}
	return c.add(h, s, body.Data)
}

func checkCAS(options json.RawMessage, h head, s settings) error {
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
	var ops []storage.Op
	for keep := c.kept(h, s); h.Current-h.Oldest+1 > keep && len(ops) < trimmedAtOnce; h.Oldest++ {
		ops = append(ops, storage.Delete(rowKey(c.path, h.Oldest)))
	}
	for key, record := range map[string]any{headKey(c.path): h, rowKey(c.path, h.Current): v} {
		op, err := put(key, record)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return &secrets.Response{Data: appendVersion(nil, h.Current, &v, h.Custom, true), Ops: ops}, nil
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
