package cli

import (
	"context"
	"encoding/json"
	"net/http"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// localView is the read of the types that an agent answers by itself.
func (o *watchOptions) localView(cl *client.Client) (view, error) {
	switch o.kind {
	case "event":
		return viewOf(events(cl, o.name)), nil
	case "connect_roots":
		return viewOf(raw(cl, "/v1/agent/connect/ca/roots")), nil
	case "connect_leaf":
		return viewOf(raw(cl, "/v1/agent/connect/ca/leaf/"+client.Escape(o.service))), o.need("service", o.service)
	case "agent_service":
		return viewOf(agentService(cl, o.service)), o.need("service", o.service)
	}
	return nil, command.Usagef("--type %q must be %s", o.kind, watchTypes)
}

// raw reads a view whose shape does not matter here.
func raw(cl *client.Client, path string) func(context.Context, client.Query) (json.RawMessage, client.Meta, error) {
	return func(ctx context.Context, q client.Query) (out json.RawMessage, meta client.Meta, err error) {
		meta, err = cl.Get(ctx, path, q, &out)
		return out, meta, err
	}
}

// firedEvent is an event as the agent lists it.
type firedEvent struct {
	ID, Name                             string
	Payload                              []byte
	NodeFilter, ServiceFilter, TagFilter string
	Version, LTime                       uint64
}

// events reads the events that came since the last read. The list's index is a hash:
// it is compared for being another, and counted here so that it only grows.
func events(cl *client.Client, name string) func(context.Context, client.Query) ([]firedEvent, client.Meta, error) {
	var last uint64
	var seen string
	var version uint64
	path := "/v1/event/list"
	if name != "" {
		path += "?name=" + client.Escape(name)
	}
	return func(ctx context.Context, q client.Query) ([]firedEvent, client.Meta, error) {
		for {
			q.Index = last
			var all []firedEvent
			meta, err := cl.Get(ctx, path, q, &all)
			if err != nil {
				return nil, meta, err
			}
			if meta.Index == last && version > 0 {
				continue // the wait ran out
			}
			last = meta.Index
			version++
			for i := range all {
				if all[i].ID == seen {
					all = all[i+1:]
					break
				}
			}
			if len(all) == 0 && version > 1 {
				continue
			}
			if len(all) > 0 {
				seen = all[len(all)-1].ID
			}
			return append([]firedEvent{}, all...), client.Meta{Index: version}, nil
		}
	}
}

// agentService reads one service of the agent, waiting on the hash of its content.
func agentService(cl *client.Client, id string) func(context.Context, client.Query) (json.RawMessage, client.Meta, error) {
	var last string
	var version uint64
	return func(ctx context.Context, q client.Query) (json.RawMessage, client.Meta, error) {
		for {
			query := q.Values()
			query.Del("index")
			if last != "" {
				query.Set("hash", last)
				query.Set("wait", "50s") // below the call's own deadline
			}
			var text json.RawMessage
			if err := cl.Send(ctx, http.MethodGet, "/v1/agent/service/"+client.Escape(id), query, nil, &text); err != nil {
				return nil, client.Meta{}, err
			}
			var body struct{ ContentHash string }
			if err := command.Decode(text, &body); err != nil {
				return nil, client.Meta{}, err
			}
			if body.ContentHash == last && version > 0 {
				continue
			}
			last = body.ContentHash
			version++
			return text, client.Meta{Index: version}, nil
		}
	}
}
