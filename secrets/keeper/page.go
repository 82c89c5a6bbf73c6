package keeper

import (
	"encoding/json"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// page cuts a list to what its request asks for with "after" and "limit" (OpenBao's paging): what stands behind a
// name in the list, and so many. Engines with long lists read no more than that of storage, and their answer is not
// changed by it; the others' lists are short, or are in an order that is not storage's. An empty rest is not found,
// as an empty list is.
func page(r *secrets.Request, resp *secrets.Response) error {
	if !r.Query.Has("after") && !r.Query.Has("limit") || resp.Data == nil {
		return nil
	}
	after, limit := r.Query.String("after"), r.Query.Int("limit", 0)
	if err := r.Query.Err(); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	var names []string
	if json.Unmarshal(resp.Data, &all) != nil || json.Unmarshal(all["keys"], &names) != nil {
		return nil // a list of another form: nothing to count
	}
	whole := len(names)
	if slices.IsSorted(names) {
		at, found := slices.BinarySearch(names, after)
		if found {
			at++
		}
		names = names[at:]
	} else if at := slices.Index(names, after); at >= 0 {
		names = names[at+1:]
	}
	if limit > 0 && len(names) > limit {
		names = names[:limit]
	}
	if len(names) == whole {
		return nil
	}
	if len(names) == 0 {
		return errkind.New(errkind.NotFound, "")
	}
	return cut(resp, all, names)
}

// cut puts the names that are left, and what is told of them, in the place of all.
func cut(resp *secrets.Response, all map[string]json.RawMessage, names []string) (err error) {
	if all["keys"], err = json.Marshal(names); err != nil {
		return err
	}
	var info map[string]json.RawMessage
	if json.Unmarshal(all["key_info"], &info) == nil && info != nil {
		kept := map[string]json.RawMessage{}
		for _, name := range names {
			if one, ok := info[name]; ok {
				kept[name] = one
			}
		}
		if all["key_info"], err = json.Marshal(kept); err != nil {
			return err
		}
	}
	resp.Data, err = json.Marshal(all)
	return err
}
