package pipeline

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/objects"
)

// handler is where events go. It never changes.
type handler struct {
	item   *objects.Item
	assets []*objects.Item
	def    *monitor.Handler
	stream *stream // of a TCPStreamHandler; nil for others
	err    error   // why it can never work
}

func compileHandler(i *objects.Item, assets []*objects.Item) *handler {
	return &handler{item: i, assets: assets, def: i.Object().(*monitor.Handler)}
}

// socketTimeout is how long a connection and what is sent over it may take, where the handler does not say (the
// contract's).
const socketTimeout = 60 * time.Second

// pass reports what the filters that need no JavaScript say, before anything waits for anybody; rest is false when
// that is all of them.
func (w *workflow) pass(i *item, now time.Time) (by *filter, rest bool) {
	s := i.subject()
	for _, f := range w.filters {
		if !f.quick() {
			return nil, true
		}
		if !f.passes(&s, now, nil) {
			return f, false
		}
	}
	return nil, false
}

// slow evaluates the filters from the first on that needs JavaScript.
func (w *workflow) slow(ctx context.Context, p *Pipelines, i *item) (by *filter) {
	s, now := i.subject(), p.cfg.Now()
	first := slices.IndexFunc(w.filters, func(f *filter) bool { return !f.quick() })
	for _, f := range w.filters[max(first, 0):] {
		if !f.slow(ctx, p, i, &s, now) {
			return f
		}
	}
	return nil
}

// handle mutates an event and hands it over.
func (w *workflow) handle(ctx context.Context, p *Pipelines, i *item) error {
	data, err := w.mutator.mutate(ctx, p, i)
	if err != nil {
		return errkind.E(errkind.Of(err), "mutator", err)
	}
	if w.handler.stream != nil {
		return w.handler.stream.send(ctx, p, data)
	}
	h := w.handler.def
	if h.Type == monitor.HandlerPipe {
		secrets, err := p.secrets(ctx, h.Namespace, h.Secrets)
		if err != nil {
			return err
		}
		r, err := p.command(ctx, h.Command, slices.Concat(h.EnvVars, secrets), w.handler.assets, data, p.limit(h.Timeout))
		switch {
		case err != nil:
			return err
		case r.TimedOut:
			return errkind.Errorf(errkind.Unavailable, "its command did not end in time")
		case r.Status != 0:
			return errkind.Errorf(errkind.Unavailable, "its command ended with status %d: %s", r.Status,
				excerpt(r.Output, secrets))
		}
		return nil
	}
	limit := time.Duration(h.Timeout) * time.Second
	if limit == 0 {
		limit = socketTimeout
	}
	return dialAndSend(ctx, h.Type, net.JoinHostPort(h.Socket.Host, strconv.Itoa(int(h.Socket.Port))), data, limit)
}

// dialAndSend sends data over a connection of its own.
func dialAndSend(ctx context.Context, network, address string, data []byte, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return errkind.E(errkind.Unavailable, "socket", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = conn.Write(data)
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return errkind.E(errkind.Unavailable, "socket", err)
	}
	return nil
}

// secrets returns the variables of secrets that a handler or a mutator names.
func (p *Pipelines) secrets(ctx context.Context, namespace string, list []*monitor.Secret) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if p.cfg.Secrets == nil {
		return nil, errSecrets
	}
	return p.cfg.Secrets(ctx, namespace, list)
}

// environment is what a command sees: the server's own environment, the definition's variables, and its assets.
func (p *Pipelines) environment(ctx context.Context, vars []string, assets []*objects.Item) ([]string, error) {
	env := append(slices.Clone(p.cfg.Env), vars...)
	if len(assets) == 0 {
		return env, nil
	}
	list, err := p.fetch(ctx, assets)
	if err != nil {
		return nil, err
	}
	return asset.Env(env, list), nil
}

// fetch unpacks assets for this server.
func (p *Pipelines) fetch(ctx context.Context, items []*objects.Item) ([]*asset.Unpacked, error) {
	if p.cfg.Assets == nil {
		return nil, errkind.Errorf(errkind.Unavailable, "assets are not available on this server")
	}
	list := make([]*monitor.Asset, len(items))
	for n, i := range items {
		list[n] = i.Object().(*monitor.Asset)
	}
	return p.cfg.Assets.FetchAll(ctx, list, p.cfg.Entity)
}
