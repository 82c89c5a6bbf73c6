package kv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// patch merges into the newest version (RFC 7396) and stores the result as the next.
func (c *call) patch() (*secrets.Response, error) {
	var body struct {
		Data    map[string]any  `json:"data"`
		Options json.RawMessage `json:"options"`
	}
	if err := decode(c.r.Body, &body); err != nil {
		return nil, errkind.New(errkind.Invalid, "failed to parse JSON input: an object is expected")
	}
	if body.Data == nil {
		return nil, errkind.New(errkind.Invalid, "no data provided")
	}
	h, v, _, err := c.newest()
	if err != nil {
		return nil, err
	}
	if !v.readable(c.r.Now) {
		return nil, errNotFound
	}
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	if err := checkCAS(body.Options, h, s); err != nil {
		return nil, err
	}
	var old map[string]any
	if err := decode(v.Data, &old); err != nil {
		return nil, errkind.New(errkind.Corrupt, "the stored version is no object")
	}
	merged, err := json.Marshal(merge(old, body.Data))
	if err != nil {
		return nil, err
	}
	return c.add(h, s, merged)
}

// decode keeps numbers as they were written.
func decode(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into)
}

// merge applies a merge patch to an object.
func merge(old, patch map[string]any) map[string]any {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(out, name)
		case map[string]any:
			below, _ := out[name].(map[string]any)
			out[name] = merge(below, v)
		default:
			out[name] = v
		}
	}
	return out
}

func (c *call) newest() (h head, v row, number int, err error) {
	h, ok, err := c.head()
	if err != nil || !ok || h.Current == 0 {
		return h, v, 0, orNotFound(err)
	}
	v, ok, err = c.row(h.Current)
	if err != nil || !ok {
		return h, v, 0, orNotFound(err)
	}
	return h, v, h.Current, nil
}

// A change marks a version; it reports whether anything changed.
type change func(v *row, now time.Time) bool

func softDelete(v *row, now time.Time) bool {
	if v.Destroyed || !v.readable(now) {
		return false
	}
	v.Deleted = now
	return true
}

func undelete(v *row, _ time.Time) bool {
	if v.Destroyed || v.Deleted.IsZero() {
		return false
	}
	v.Deleted = time.Time{}
	return true
}

func destroy(v *row, _ time.Time) bool {
	if v.Destroyed {
		return false
	}
	v.Destroyed, v.Data = true, nil
	return true
}

// markAsked marks the versions that the body names.
func (c *call) markAsked(do change) (*secrets.Response, error) {
	f, err := c.r.Fields()
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, text := range f.Strings("versions") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, errkind.New(errkind.Invalid, `field "versions": must be a list of whole numbers`)
		}
		numbers = append(numbers, n)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if len(numbers) == 0 {
		return nil, errkind.New(errkind.Invalid, "no version number provided")
	}
	return c.mark(numbers, do)
}

// mark marks versions, the newest when none is named. What is not there is passed over.
func (c *call) mark(numbers []int, do change) (*secrets.Response, error) {
	h, ok, err := c.head()
	if err != nil || !ok {
		return &secrets.Response{}, err
	}
	if numbers == nil {
		numbers = []int{h.Current}
	}
	now := c.r.Now.UTC()
	var ops []storage.Op
	for _, n := range numbers {
		v, ok, err := c.row(n)
		if err != nil {
			return nil, err
		}
		if !ok || !do(&v, now) {
			continue
		}
		ops = append(ops, putRow(c.path, n, &v))
	}
	return &secrets.Response{Ops: ops}, nil
}

// subkeys shows the shape of a version: every leaf is null.
func (c *call) subkeys() (*secrets.Response, error) {
	h, v, number, err := c.asked()
	if err != nil {
		return nil, err
	}
	f, err := c.r.Fields()
	if err != nil {
		return nil, err
	}
	depth := f.Int("depth", 0)
	if err := f.Err(); err != nil {
		return nil, err
	}
	out := []byte(`{"metadata":`)
	out = appendVersion(out, number, &v, h.Custom, true)
	if !v.readable(c.r.Now) {
		return &secrets.Response{Data: append(out, `,"subkeys":null}`...), Missing: true}, nil
	}
	var data map[string]any
	if err := decode(v.Data, &data); err != nil {
		return nil, errkind.New(errkind.Corrupt, "the stored version is no object")
	}
	shape, err := json.Marshal(leaves(data, depth))
	if err != nil {
		return nil, err
	}
	out = append(append(out, `,"subkeys":`...), shape...)
	return &secrets.Response{Data: append(out, '}')}, nil
}

func leaves(data map[string]any, depth int) map[string]any {
	out := make(map[string]any, len(data))
	for name, value := range data {
		out[name] = nil
		if below, ok := value.(map[string]any); ok && depth != 1 && len(below) > 0 {
			out[name] = leaves(below, max(depth-1, 0))
		}
	}
	return out
}

func (c *call) readMeta() (*secrets.Response, error) {
	h, ok, err := c.head()
	if err != nil || !ok {
		return nil, orNotFound(err)
	}
	all, err := c.tell(&h)
	if err != nil {
		return nil, err
	}
	return answer(all)
}

// tell is what is known of a path beside its data.
func (c *call) tell(h *head) (map[string]any, error) {
	versions := map[string]json.RawMessage{}
	if h.Current > 0 {
		for n := h.Oldest; n <= h.Current; n++ {
			v, ok, err := c.row(n)
			if err != nil {
				return nil, err
			}
			if ok {
				versions[strconv.Itoa(n)] = appendVersion(nil, n, &v, nil, false)
			}
		}
	}
	return map[string]any{"cas_required": h.CASRequired, "created_time": h.Created.UTC(), "current_version": h.Current,
		"custom_metadata":      h.Custom,
		"delete_version_after": h.DeleteAfter.String(), "max_versions": h.MaxVersions, "oldest_version": h.Oldest,
		"updated_time": h.Updated.UTC(), "versions": versions,
		"current_metadata_version": h.Meta, "metadata_cas_required": h.MetaCASRequired}, nil
}

// detailedMost bounds how many paths one list tells all about: each costs some reads.
const detailedMost = 1000

// listDetailed lists a folder with what is known of each path in it.
func (c *call) listDetailed(r *secrets.Request) (*secrets.Response, error) {
	names, err := listed(c, c.view, "meta/", r, detailedMost)
	if err != nil {
		return nil, err
	}
	info := make(map[string]any, len(names))
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			continue
		}
		c.path = strings.TrimPrefix(strings.TrimSuffix(r.Rest, "/")+"/"+name, "/")
		h, ok, err := c.head()
		if err != nil {
			return nil, err
		}
		if !ok { // it went between the list and this
			continue
		}
		if info[name], err = c.tell(&h); err != nil {
			return nil, err
		}
	}
	resp, err := answer(map[string]any{"keys": names, "key_info": info})
	if err == nil && len(names) == detailedMost {
		resp.Warnings = []string{"the list may be cut: it has the most that one answer holds; ask on with after=" +
			names[len(names)-1]}
	}
	return resp, err
}

// The bounds of what users may say about a path.
const (
	customKeys       = 64
	customKeyBytes   = 128
	customValueBytes = 512
)

func (c *call) writeMeta(patch bool) (*secrets.Response, error) {
	h, ok, err := c.head()
	if err != nil {
		return nil, err
	}
	if !ok {
		if patch {
			return nil, errNotFound
		}
		h.Created, h.Updated = c.r.Now.UTC(), c.r.Now.UTC()
	}
	f, err := c.r.Fields()
	if err != nil {
		return nil, err
	}
	if err := c.checkMetaCAS(f, &h); err != nil {
		return nil, err
	}
	h.Meta++
	h.MetaCASRequired = f.Bool("metadata_cas_required", h.MetaCASRequired)
	h.MaxVersions, h.CASRequired = f.Int("max_versions", h.MaxVersions), f.Bool("cas_required", h.CASRequired)
	h.DeleteAfter = f.Duration("delete_version_after", h.DeleteAfter)
	if f.Has("custom_metadata") {
		if h.Custom, err = custom(f, h.Custom, patch); err != nil {
			return nil, err
		}
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if h.MaxVersions < 0 {
		return nil, errkind.New(errkind.Invalid, `field "max_versions": must not be negative`)
	}
	return &secrets.Response{Ops: []storage.Op{putHead(c.path, &h)}}, nil
}

// checkMetaCAS holds a write of settings against the number of the last one: OpenBao's metadata_cas.
func (c *call) checkMetaCAS(f *secrets.Fields, h *head) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	want := f.Int("metadata_cas", 0)
	switch {
	case f.Err() != nil:
		return f.Err()
	case f.Has("metadata_cas") && want != h.Meta:
		return errkind.New(errkind.Invalid, "metadata check-and-set parameter did not match the current version")
	case !f.Has("metadata_cas") && (s.MetaCASRequired || h.MetaCASRequired):
		return errkind.New(errkind.Invalid, "metadata check-and-set parameter required for this call")
	}
	return nil
}

// custom is the custom metadata after a write, which replaces, or a patch, which merges.
func custom(f *secrets.Fields, old map[string]string, patch bool) (map[string]string, error) {
	next := map[string]string{}
	if patch {
		maps.Copy(next, old)
		given, _ := f.Any("custom_metadata").(map[string]any)
		for name, value := range given {
			if value == nil {
				delete(next, name)
				delete(given, name)
			}
		}
	}
	maps.Copy(next, f.Texts("custom_metadata"))
	if len(next) > customKeys {
		return nil, errkind.Errorf(errkind.Invalid, `field "custom_metadata": has %d keys, more than %d`, len(next),
			customKeys)
	}
	for name, value := range next {
		if name == "" || len(name) > customKeyBytes || len(value) > customValueBytes {
			return nil, errkind.E(errkind.Invalid, "",
				fmt.Errorf("field \"custom_metadata\": keys have 1 to %d bytes and values at most %d: %.40q", customKeyBytes,
					customValueBytes, name))
		}
	}
	return next, nil
}

func (c *call) deleteMeta() (*secrets.Response, error) {
	h, ok, err := c.head()
	if err != nil || !ok {
		return &secrets.Response{}, err
	}
	ops := []storage.Op{storage.Delete(headKey(c.path))}
	for n := max(h.Oldest, 1); n <= h.Current; n++ {
		ops = append(ops, storage.Delete(rowKey(c.path, n)))
	}
	return &secrets.Response{Ops: ops}, nil
}
