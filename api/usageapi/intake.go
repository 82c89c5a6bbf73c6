package usageapi

import (
	"cmp"
	"net/http"
	"strconv"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/router"
)

// events takes JSON and CloudEvents.
func (a *API) events(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	b := &router.Batch{Producer: r.Header.Get("Usage-Producer")}
	for _, h := range []struct {
		name string
		to   *uint64
	}{{"Usage-Epoch", &b.Epoch}, {"Usage-Sequence", &b.Sequence}} {
		text := r.Header.Get(h.name)
		if (text != "") != (b.Producer != "") {
			return 0, nil, errkind.New(errkind.Invalid, "Usage-Producer, Usage-Epoch and Usage-Sequence belong together")
		}
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, nil, errkind.Errorf(errkind.Invalid, "%s: %.40q is no number", h.name, text)
		}
		*h.to = n
	}
	data, release, err := a.body(r, MaxJSONBytes)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	if item, is := cloudevents.DecodeBinary(r.Header.Get, data, a.valueField); is {
		b.Items = []cloudevents.Item{item}
	} else if b.Items, err = cloudevents.Decode(r.Header.Get("Content-Type"), data, a.valueField); err != nil {
		return 0, nil, err
	}
	return a.take(r, b)
}

// valueField says which field of a CloudEvent is a product's quantity.
func (a *API) valueField(product string) string {
	if p, ok := a.cfg.Definitions.View().Products.Get(product); ok && p.Kind != usage.Unique {
		return cmp.Or(p.Value, "value")
	}
	return ""
}

// batch takes the binary form.
func (a *API) batch(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	data, release, err := a.body(r, MaxBodyBytes)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	in, err := batch.Read(data)
	if err != nil {
		return 0, nil, err
	}
	b := &router.Batch{Producer: in.Producer, Epoch: in.Epoch, Sequence: in.Sequence,
		Items: make([]cloudevents.Item, len(in.Events))}
	for i := range in.Events {
		b.Items[i].Event = in.Events[i]
	}
	return a.take(r, b)
}

// take rejects what the token may not write, and hands the rest on.
func (a *API) take(r *http.Request, b *router.Batch) (int, any, error) {
	if len(b.Items) > usage.MaxEvents {
		return 0, nil, errkind.Errorf(errkind.TooLarge, "a batch has %d events, the most is %d", len(b.Items),
			usage.MaxEvents)
	}
	may := map[string]bool{}
	refused := 0
	for i := range b.Items {
		item := &b.Items[i]
		if item.Err != nil {
			continue
		}
		tenant := cmp.Or(item.Tenant, usage.DefaultTenant)
		ok, known := may[tenant]
		if !known {
			ok = a.cfg.Allow(r, tenant, true)
			may[tenant] = ok
		}
		if !ok {
			refused++
			item.Err = usage.Wrong("tenant", "permission denied: the token needs usage:write on %.100q", tenant)
		}
	}
	if refused > 0 && refused == len(b.Items) {
		return 0, nil, denied(cmp.Or(b.Items[0].Tenant, usage.DefaultTenant), true)
	}
	if len(b.Items) == 0 { // an empty batch still needs a right
		if err := a.may(r, usage.DefaultTenant, true); err != nil {
			return 0, nil, err
		}
	}
	answer, err := a.cfg.Router.Take(r.Context(), b)
	return http.StatusAccepted, answer, err
}
