package childcmd

import (
	"context"
	"encoding/json"

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
		return viewOf(cl.AgentService(o.service)), o.need("service", o.service)
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
