package keeper

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/task"
)

// maxScanned bounds the names of one SCAN: beyond it the folders are to be scanned one by one.
const maxScanned = 100_000

// scan lists a folder and all that are below it, by the engine's own lists. The capability for it is one of its own,
// and was judged for the folder that was asked for.
func scan(ctx context.Context, t *task.Task) (*secrets.Response, error) {
	if t.Entry.Type == "system" {
		return t.Handle(ctx, t.Request)
	}
	if t.Entry.Type == "token" {
		return nil, system.ErrUnsupported
	}
	base := strings.TrimSuffix(t.Rest, "/")
	if base != "" {
		base += "/"
	}
	var names []string
	for folders := []string{""}; len(folders) > 0; {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		q := *t.Request
		q.Op, q.Rest, q.Path, q.Query = secrets.List, base+folder, t.Entry.Path+base+folder, secrets.Fields{}
		resp, err := t.Handle(ctx, &q)
		if errkind.Is(err, errkind.NotFound) && folder != "" {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		var list struct {
			Keys []string `json:"keys"`
		}
		if err := json.Unmarshal(resp.Data, &list); err != nil {
			return nil, system.ErrUnsupported
		}
		for _, name := range list.Keys {
			if strings.HasSuffix(name, "/") {
				folders = append(folders, folder+name)
			} else {
				names = append(names, folder+name)
			}
		}
		if len(names)+len(folders) > maxScanned {
			return nil, errkind.Errorf(errkind.Invalid, "there are more than %d names below %s: scan its folders",
				maxScanned, t.Path)
		}
	}
	if len(names) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	slices.Sort(names)
	data, err := json.Marshal(map[string]any{"keys": names})
	return &secrets.Response{Data: data}, err
}
