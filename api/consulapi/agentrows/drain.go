package agentrows

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/meshrows"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// DrainStatus says how far an instance's draining is.
type DrainStatus struct {
	Service string // name of the service
	ID      string // of the instance
	Done    bool
	Waiting string // what for, in words; "" when done
	// Proxies are those that were told of the instance; Pending some of those that have not acknowledged that it drains.
	Proxies int
	Pending []string
	Silent  []string // hosts that did not answer: what their proxies know is not known
	// Open are the connections to the instance and its sidecar; Busy those of them in use.
	Open, Busy int
}

// Connections tells how many connections the ports of this host have, and how many of them are in use.
type Connections func(ports []uint16, quiet time.Duration) (open, busy int, err error)

// The defaults and bounds of draining.
const (
	drainWait    = 30 * time.Second
	maxDrainWait = time.Hour
	drainQuiet   = 2 * time.Second
	drainAgain   = 250 * time.Millisecond
	// serversWait is for how long no server may answer before a process that ends gives up draining.
	serversWait = 2 * time.Second
)

// duration reads a parameter that is a duration.
func duration(q *rows.Request, name string, def, most time.Duration) (time.Duration, error) {
	text := q.Query.Value(name)
	if text == "" {
		return def, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, answer.Invalidf("Invalid value for %s: %q is no duration from 0 to %v", name, text, most)
	}
	return d, nil
}

// agentServiceDrain marks an instance as draining, so that it gets no new work, and waits until nobody sends it any:
// every proxy has acknowledged, and no connection is in use. ?enable=false takes the mark away.
func (ar *Rows) agentServiceDrain(q *rows.Request, l Local) error {
	if q.Rest == "" {
		return answer.Invalidf("Missing service ID")
	}
	on := true
	if q.Query.Has("enable") {
		var err error
		if on, err = enable(q); err != nil {
			return err
		}
	}
	wait, err := duration(q, "wait", drainWait, maxDrainWait)
	if err != nil {
		return err
	}
	quiet, err := duration(q, "quiet", drainQuiet, time.Minute)
	if err != nil {
		return err
	}
	if err := serviceRight(q, l, q.Rest); err != nil {
		return err
	}
	if err := l.SetServiceDrain(q.R.Context(), q.Rest, on, q.Query.Value("reason")); err != nil {
		return err
	}
	if !on {
		return q.ReplyEmpty()
	}
	d := ar.draining(l, q.Rest, q.Token())
	d.wait(q.R.Context(), wait, quiet)
	return q.ReplyValue(&d.st)
}

// draining is one instance on its way out of use.
type draining struct {
	rows  *Rows
	token string // what the servers are asked with
	ports []uint16
	told  bool // every proxy has acknowledged
	// unheard: no server answered the last question about the proxies.
	unheard bool
	st      DrainStatus
}

// draining begins to look at an instance that is marked.
func (ar *Rows) draining(l Local, id, token string) *draining {
	d := &draining{rows: ar, token: token, told: !ar.meshed} // without a mesh there is nobody to tell
	d.st = DrainStatus{ID: id, Pending: []string{}, Silent: []string{}}
	view := l.View()
	if s := view.Services[id]; s != nil {
		d.st.Service = s.Service.Name
		d.ports = append(d.ports, uint16(s.Service.Port))
	}
	for _, s := range view.Services {
		if behind(s.Service) == id {
			d.ports = append(d.ports, uint16(s.Service.Port))
		}
	}
	return d
}

// behind is the instance that a sidecar stands for, "" for everything else.
func behind(s *catalog.Service) string {
	var proxy struct{ DestinationServiceID string }
	if s.Kind != catalog.KindConnectProxy || len(s.Proxy) == 0 || json.Unmarshal(s.Proxy, &proxy) != nil {
		return ""
	}
	return proxy.DestinationServiceID
}

// wait looks until the instance has no work left or the time is over.
func (d *draining) wait(ctx context.Context, most, quiet time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		d.look(ctx, quiet)
		if d.st.Done || !pauseFor(ctx, drainAgain) {
			return
		}
	}
}

// look finds out how far it is.
func (d *draining) look(ctx context.Context, quiet time.Duration) {
	st := &d.st
	if !d.told {
		d.told = d.settled(ctx)
	}
	var err error
	st.Open, st.Busy, err = d.rows.Connections(d.ports, quiet)
	st.Done, st.Waiting = d.told && err == nil && st.Busy == 0, ""
	switch {
	case !d.told:
		st.Waiting = fmt.Sprintf("%d of %d proxies have not acknowledged, %d hosts do not answer", len(st.Pending),
			st.Proxies, len(st.Silent))
	case err != nil:
		st.Waiting = "open connections cannot be told: " + err.Error()
	case st.Busy > 0:
		st.Waiting = fmt.Sprintf("%d of %d connections are in use", st.Busy, st.Open)
	}
}

// HasServices tells whether this host registered any.
func (ar *Rows) HasServices() bool { return len(ar.Local.View().Services) > 0 }

// serversAnswer tells whether a server that knows a leader answers: without one nobody can be told that an instance
// drains.
func (ar *Rows) serversAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serversWait)
	defer cancel()
	answer, err := ar.AskServers(ctx, http.MethodGet, "/v1/status/leader", nil, ar.DefaultToken())
	if err == nil && string(answer) == `""` {
		err = errkind.New(errkind.Unavailable, "no leader")
	}
	if err != nil {
		return errkind.E(errkind.Unavailable, "no server answers, so nobody can be told", err)
	}
	return nil
}

// Told tells, of an instance that drains, which ports of this host it and its sidecar have, and whether every proxy
// knows that it goes.
func (ar *Rows) Told(ctx context.Context, id string) (ports []uint16, told bool) {
	s := ar.Local.View().Services[id]
	if s == nil {
		return nil, false
	}
	d := ar.draining(ar.Local, id, cmp.Or(s.Definition.Token, ar.DefaultToken()))
	return d.ports, d.told || d.settled(ctx)
}

// DrainAll marks every instance of this host as draining, as long as the process runs, and waits until none has work
// left or ctx ends. said hears, by an instance's id, what is waited for, whenever that changes; "" is that nothing is.
// It returns those that still have work. When no server answers, at the beginning or later, it gives up: kind
// Unavailable.
func (ar *Rows) DrainAll(ctx context.Context, reason string, said func(id, waiting string)) ([]string, error) {
	var ids []string
	var left []*draining
	for id, s := range ar.Local.View().Services {
		if behind(s.Service) != "" {
			continue // drains with what is behind it
		}
		ids = append(ids, id)
		token := cmp.Or(s.Definition.Token, ar.DefaultToken())
		left = append(left, ar.draining(ar.Local, id, token))
	}
	slices.Sort(ids)
	slices.SortFunc(left, func(x, y *draining) int { return cmp.Compare(x.st.ID, y.st.ID) })
	if len(ids) == 0 {
		return nil, nil
	}
	if err := ar.serversAnswer(ctx); err != nil {
		return ids, err
	}
	if err := ar.Local.DrainServices(ctx, ids, reason); err != nil {
		return ids, err
	}
	last := map[string]string{}
	var silent error
	for {
		left = slices.DeleteFunc(left, func(d *draining) bool {
			if ctx.Err() != nil || silent != nil {
				return false
			}
			d.look(ctx, drainQuiet)
			if d.unheard {
				silent = ar.serversAnswer(ctx)
			}
			if before, heard := last[d.st.ID]; !heard || before != d.st.Waiting {
				last[d.st.ID] = d.st.Waiting
				said(d.st.ID, d.st.Waiting)
			}
			return d.st.Done
		})
		if len(left) == 0 || silent != nil || !pauseFor(ctx, drainAgain) {
			break
		}
	}
	if ctx.Err() != nil {
		silent = nil // the time was over before a server could answer
	}
	ids = ids[:0]
	for _, d := range left {
		ids = append(ids, d.st.ID)
	}
	return ids, silent
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// settled asks the servers whether every proxy knows that the instance drains.
func (d *draining) settled(ctx context.Context) bool {
	st := &d.st
	path := meshrows.SettlePattern + url.PathEscape(st.Service) + "?" + url.Values{"node": {d.rows.Identity.NodeName},
		"id": {st.ID}}.Encode()
	answer, err := d.rows.AskServers(ctx, http.MethodGet, path, nil, d.token)
	var found struct {
		Settled         bool
		Proxies         int
		Pending, Silent []string
	}
	if err == nil {
		err = json.Unmarshal(answer, &found)
	}
	if d.unheard = err != nil; d.unheard {
		st.Silent = []string{"servers: " + errkind.Text(err)}
		return false
	}
	st.Proxies, st.Pending, st.Silent = found.Proxies, found.Pending, found.Silent
	return found.Settled
}
