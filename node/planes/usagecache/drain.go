package usagecacheplane

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/respapi"
)

// drain takes the cache of this host out of use, in steps: the maintenance key exists, clients of RESP3 are told and
// the catalog says draining; every connection is served on; until each client has closed or is idle, and each health
// checker has seen the key, with a ceiling. What comes afterwards is the caller's: a process that ends, or an operator.
type drain struct {
	p       *Plane
	key     string
	ceiling atomic.Int64 // a time.Duration
	wake    chan struct{}

	mu    sync.Mutex // guards what follows
	since time.Time  // zero: it serves
	why   string
	done  chan struct{} // closed when nobody is waited for any more
	over  string        // why it is done
}

func newDrain(p *Plane, keys DrainKeys) *drain {
	d := &drain{p: p, key: keys.MaintenanceKey, wake: make(chan struct{}, 1)}
	d.ceiling.Store(int64(keys.Ceiling))
	return d
}

// start begins a drain, if none is under way, and returns what is closed at its end.
func (d *drain) start(why string) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.since, d.why, d.done, d.over = d.p.d.Clock.Now(), why, make(chan struct{}), ""
		d.p.server.Drain()
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return d.done
}

// undo ends a drain: the host takes work again.
func (d *drain) undo() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return
	}
	d.since = time.Time{}
	d.finish("it was undone")
	d.p.server.Undo()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// finish needs mu.
func (d *drain) finish(over string) {
	if d.over == "" {
		d.over = over
		close(d.done)
	}
}

const (
	drainLook = 50 * time.Millisecond
	// leastDrain is for health checks of a second, which may need two of them to take the host out.
	leastDrain = 500 * time.Millisecond
)

// run watches drains until ctx ends.
func (d *drain) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		}
		d.mark(ctx)
		for d.look() {
			t := d.p.d.Clock.NewTimer(drainLook)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return nil
			}
		}
	}
}

// mark tells the catalog.
func (d *drain) mark(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catalogPatience)
	defer cancel()
	draining, why := d.reason()
	err := d.p.d.Local.SetServiceDrain(ctx, Service, draining, why)
	if err != nil {
		d.p.d.Log.Warn("the catalog was not told whether the cache drains", "error", err)
	}
}

func (d *drain) reason() (draining bool, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero(), d.why
}

const catalogPatience = 5 * time.Second

// look ends the drain when it is time; false when there is nothing to wait for.
func (d *drain) look() bool {
	waiting := d.p.server.Waiting()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() || d.over != "" {
		return false
	}
	took := d.p.d.Clock.Since(d.since)
	switch {
	case len(waiting) == 0 && took >= leastDrain:
		d.finish("no client needs this host")
	case took >= time.Duration(d.ceiling.Load()):
		d.finish("the ceiling was reached")
		d.p.d.Log.Warn("the cache ends although clients need it", "clients", len(waiting), "first", waiting, "after", took)
	}
	return d.over == ""
}

// quiesce drains, and waits until that is done or ctx ends.
func (d *drain) quiesce(ctx context.Context) {
	select {
	case <-d.start("the process ends"):
	case <-ctx.Done():
	}
}

// waiting is how many clients a drain waits for.
func (d *drain) waiting() int {
	d.mu.Lock()
	under := !d.since.IsZero() && d.over == ""
	d.mu.Unlock()
	if !under {
		return 0
	}
	return len(d.p.server.Waiting())
}

// drainStatus is the answer of GET /v1/usage/drain.
type drainStatus struct {
	State          string           `json:"state"` // serving, draining or drained
	MaintenanceKey string           `json:"maintenance_key"`
	Reason         string           `json:"reason,omitempty"`
	Since          *time.Time       `json:"since,omitempty"`
	Ceiling        string           `json:"ceiling"`
	Result         string           `json:"result,omitempty"`
	Count          int              `json:"waiting"`
	Clients        []respapi.Waiter `json:"waiting_for"`
}

// mostTold bounds the clients that are named.
const mostTold = 100

func (d *drain) status() drainStatus {
	clients := d.p.server.Waiting()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := drainStatus{State: "serving", MaintenanceKey: d.key, Ceiling: time.Duration(d.ceiling.Load()).String(),
		Clients: []respapi.Waiter{}}
	if d.since.IsZero() {
		return s
	}
	since := d.since.UTC()
	s.State, s.Since, s.Reason, s.Result = "draining", &since, d.why, d.over
	if d.over != "" {
		s.State = "drained"
	}
	s.Count, s.Clients = len(clients), append(s.Clients, clients[:min(len(clients), mostTold)]...)
	return s
}

func (d *drain) serveStatus(w http.ResponseWriter, r *http.Request) { d.answer(w, r, http.StatusOK) }

func (d *drain) answer(w http.ResponseWriter, r *http.Request, status int) {
	body, err := json.Marshal(d.status())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, status, httpx.JSONType, append(body, '\n'))
}

func (d *drain) serveStart(w http.ResponseWriter, r *http.Request) {
	d.start("an operator asked for it")
	d.answer(w, r, http.StatusAccepted)
}

func (d *drain) serveUndo(w http.ResponseWriter, r *http.Request) {
	d.undo()
	d.answer(w, r, http.StatusOK)
}
