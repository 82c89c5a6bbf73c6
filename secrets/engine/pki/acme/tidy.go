package acme

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage"
)

const (
	// tidyPath is where the engine's own requests go; nobody outside can set their mark.
	tidyPath = "acme-tidy"
	tidyMost = 64 // entries of one commit
)

// Due asks for what has expired to be deleted, as engine.Tender says.
func Due(ctx context.Context, view engine.View, now time.Time) ([]*secrets.Request, error) {
	list, err := view.Scan(ctx, endPrefix, endKey(now.Add(1), ""), 1)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return []*secrets.Request{{Op: secrets.Update, Rest: tidyPath}}, nil
}

// IsTidy reports whether a request is one that Due asked for.
func IsTidy(r *secrets.Request) bool { return r.Due && r.Rest == tidyPath }

// Tidy deletes what has expired: orders with their authorizations, and whose certificates were, once they ended.
func Tidy(ctx context.Context, view engine.View, now time.Time) (*secrets.Response, error) {
	list, err := view.Scan(ctx, endPrefix, endKey(now.Add(1), ""), tidyMost)
	if err != nil {
		return nil, err
	}
	resp := &secrets.Response{}
	for _, entry := range list {
		var keys []string
		if json.Unmarshal(entry.Value, &keys) == nil {
			for _, key := range keys {
				if strings.HasPrefix(key, "acme/") {
					resp.Ops = append(resp.Ops, storage.Delete(key))
				}
			}
		}
		resp.Ops = append(resp.Ops, storage.Delete(entry.Key))
	}
	return resp, nil
}
