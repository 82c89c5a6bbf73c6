package usageapi

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/batch"
	"corbel.dev/corbel/usage/cloudevents"
	"corbel.dev/corbel/usage/router"
)

// IntakeConfig of an Intake.
type IntakeConfig struct {
	// Take stores events.
	Take func(ctx context.Context, b *router.Batch) (router.Answer, error)
	// Product is the definition of a name, for the field that has its quantity.
	Product func(name string) (*usage.Product, bool)
	// May says why the token of a request may not write a tenant's usage: an error of kind Denied. Another one is of the
	// request as a whole.
	May func(r *http.Request, tenant string) error
}

// Intake is the part of the door that takes events. It is for any goroutine.
type Intake struct {
	cfg      IntakeConfig
	decoders chan struct{} // has one element for each body that is being decoded
	zstd     *zstd.Decoder
}

// NewIntake makes an Intake.
func NewIntake(cfg IntakeConfig) (*Intake, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBodyBytes),
		zstd.WithDecoderMaxWindow(8<<20))
	return &Intake{cfg: cfg, decoders: make(chan struct{}, decodersAtOnce), zstd: z}, err
}

// Events is POST /v1/usage/events, Batch POST /v1/usage/batch.
func (in *Intake) Events() http.Handler { return handler(in.events) }

// Batch is the binary door.
func (in *Intake) Batch() http.Handler { return handler(in.batch) }

// events takes JSON and CloudEvents.
func (in *Intake) events(_ http.ResponseWriter, r *http.Request) (int, any, error) {
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
	data, release, err := in.body(r, MaxJSONBytes)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	if item, is := cloudevents.DecodeBinary(r.Header.Get, data, in.valueField); is {
		b.Items = []cloudevents.Item{item}
	} else if b.Items, err = cloudevents.Decode(r.Header.Get("Content-Type"), data, in.valueField); err != nil {
		return 0, nil, err
	}
	return in.take(r, b)
}

// valueField says which field of a CloudEvent is a product's quantity.
func (in *Intake) valueField(product string) string {
	if p, ok := in.cfg.Product(product); ok && p.Kind != usage.Unique {
		return cmp.Or(p.Value, "value")
	}
	return ""
}

// batch takes the binary form.
func (in *Intake) batch(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	data, release, err := in.body(r, MaxBodyBytes)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	got, err := batch.Read(data)
	if err != nil {
		return 0, nil, err
	}
	b := &router.Batch{Producer: got.Producer, Epoch: got.Epoch, Sequence: got.Sequence,
		Items: make([]cloudevents.Item, len(got.Events))}
	for i := range got.Events {
		b.Items[i].Event = got.Events[i]
	}
	return in.take(r, b)
}

// take rejects what the token may not write, and hands the rest on.
func (in *Intake) take(r *http.Request, b *router.Batch) (int, any, error) {
	if len(b.Items) > usage.MaxEvents {
		return 0, nil, errkind.Errorf(errkind.TooLarge, "a batch has %d events, the most is %d", len(b.Items),
			usage.MaxEvents)
	}
	may := map[string]error{}
	refused := 0
	for i := range b.Items {
		item := &b.Items[i]
		if item.Err != nil {
			continue
		}
		tenant := cmp.Or(item.Tenant, usage.DefaultTenant)
		why, known := may[tenant]
		if !known {
			why = in.cfg.May(r, tenant)
			may[tenant] = why
		}
		if why != nil && !errkind.Is(why, errkind.Denied) {
			return 0, nil, why
		}
		if why != nil {
			refused++
			item.Err = usage.Wrong("tenant", "permission denied: the token needs usage:write on %.100q", tenant)
		}
	}
	if refused > 0 && refused == len(b.Items) {
		return 0, nil, may[cmp.Or(b.Items[0].Tenant, usage.DefaultTenant)]
	}
	if len(b.Items) == 0 { // an empty batch still needs a right
		if err := in.cfg.May(r, usage.DefaultTenant); err != nil {
			return 0, nil, err
		}
	}
	answer, err := in.cfg.Take(r.Context(), b)
	return http.StatusAccepted, answer, err
}

// body reads a request's body, decompressed. release gives its place back.
func (in *Intake) body(r *http.Request, most int64) (data []byte, release func(), err error) {
	select {
	case in.decoders <- struct{}{}:
	case <-r.Context().Done():
		return nil, nil, errkind.E(errkind.Unavailable, "usage: too many bodies are being read", r.Context().Err())
	}
	free := func() { <-in.decoders }
	defer func() {
		if release = free; err != nil {
			free()
		}
	}()
	raw, err := httpx.ReadBody(r, nil, most)
	if err != nil {
		return nil, nil, err
	}
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return raw, nil, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(strings.NewReader(string(raw)))
		if err != nil {
			return nil, nil, errkind.Errorf(errkind.Invalid, "the body is no gzip: %v", err)
		}
		data, err = io.ReadAll(io.LimitReader(z, MaxBodyBytes+1))
		if err != nil {
			return nil, nil, errkind.Errorf(errkind.Invalid, "the body is no gzip: %v", err)
		}
	case "zstd":
		data, err = in.zstd.DecodeAll(raw, nil)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return nil, nil, &httpx.TooLarge{LimitBytes: MaxBodyBytes}
		}
		if err != nil {
			return nil, nil, errkind.Errorf(errkind.Invalid, "the body is no zstd: %v", err)
		}
	default:
		return nil, nil, errkind.Errorf(errkind.Invalid, "Content-Encoding: %.50q is none of gzip and zstd", encoding)
	}
	if len(data) > MaxBodyBytes {
		return nil, nil, &httpx.TooLarge{LimitBytes: MaxBodyBytes}
	}
	return data, nil, nil
}
