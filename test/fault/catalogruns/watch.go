package catalogruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Watch is a run of A3: watchers of a key, a prefix and a service over a cluster
// that a nemesis breaks. Their index must never go back, values of a counter must
// never go back (but to a write whose outcome was unknown), and after the last write each must see the final state by
// being woken: their wait is far longer than what they are given.
type Watch struct {
	Duration time.Duration
	Faults   []faultrun.FaultKind
	Watchers int // of each kind; default 3
}

// WatchReport tells what a run did.
type WatchReport struct {
	Answers, Writes int
	Faults          map[faultrun.FaultKind]int
	// Settled is how long after the last acknowledged write the last watcher had it.
	Settled time.Duration
}

const (
	watchWait  = 90 * time.Second // of each blocking query
	watchLimit = 15 * time.Second // for the final state
	watchKeys  = 4
)

// watchState is what a watcher has seen newest: names to counters.
type watchState map[string]int

// watcher follows one path. decode turns an answer into a state.
type watcher struct {
	name, path string
	decode     func(body []byte) (watchState, error)
	client     *faultrun.Client
	cluster    *faultrun.Cluster
	rng        *rand.Rand

	mu      sync.Mutex // guards what follows, read by the judge
	state   watchState
	index   uint64
	answers int
	broken  error
	back    []wentBack
}

// wentBack is a value that a watcher saw after a newer one.
type wentBack struct {
	name     string
	old, now int
	index    uint64
}

// doubts are the values, 0 for an absence, of writes whose outcome is unknown, by name: each may come at any
// time, also after later ones, when the server that had the request was frozen or cut off meanwhile.
type doubts map[string]map[int]bool

func (d doubts) add(name string, value int) {
	if d[name] == nil {
		d[name] = map[int]bool{}
	}
	d[name][value] = true
}

// verdict tells what the watcher saw that no write explains.
func (w *watcher) verdict(unknown doubts) error {
	errs := []error{w.broken}
	for _, b := range w.back {
		if !unknown[b.name][b.now] {
			errs = append(errs, fmt.Errorf("%s: %s went back from %d to %d at index %d", w.name, b.name, b.old, b.now, b.index))
		}
	}
	return errors.Join(errs...)
}

// RunWatch does one run on a fresh cluster of three.
func RunWatch(ctx context.Context, l *faultrun.Lab, cfg Watch, seed uint64) (report WatchReport, err error) {
	if cfg.Watchers == 0 {
		cfg.Watchers = 3
	}
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	n := &faultrun.Nemesis{C: c, Rng: rand.New(rand.NewPCG(seed, 3)), Kinds: cfg.Faults, Begin: time.Now()}
	list, stop := startWatchers(ctx, c, cfg.Watchers, seed)
	defer stop()
	w := &watchWriter{client: faultrun.NewClient(c.Servers[0].HTTP), rng: rand.New(rand.NewPCG(n.Rng.Uint64(), 0)),
		servers: c.Servers, unknown: doubts{}}
	w.client.Timeout = 2 * time.Second
	defer w.client.Close()
	final, err := w.load(ctx, c, n, cfg.Duration)
	report.Faults, report.Writes = n.Done, w.counter
	if err == nil {
		begin := time.Now()
		err = settled(ctx, list, final, w.unknown, watchLimit)
		report.Settled = time.Since(begin)
	}
	stop()
	for _, watcher := range list {
		report.Answers += watcher.answers
		err = errors.Join(err, watcher.verdict(w.unknown))
	}
	if err = errors.Join(err, c.Damage()); err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, strings.Join(n.Log, "\n"), c.Logs())
	}
	return report, err
}

// startWatchers starts n watchers of each kind; stop ends them and waits.
func startWatchers(ctx context.Context, c *faultrun.Cluster, n int, seed uint64) (list []*watcher, stop func()) {
	kinds := []watcher{
		{name: "key", path: "/v1/kv/watch/0?", decode: decodePairs},
		{name: "prefix", path: "/v1/kv/watch/?recurse&", decode: decodePairs},
		{name: "service", path: "/v1/health/service/watched?", decode: decodeService},
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for k := range kinds {
		for i := range n {
			w := &watcher{name: fmt.Sprintf("%s watcher %d", kinds[k].name, i), path: kinds[k].path, decode: kinds[k].decode,
				client: faultrun.NewClient(c.Servers[i%len(c.Servers)].HTTP), cluster: c,
				rng: rand.New(rand.NewPCG(seed, uint64(1000+10*k+i)))}
			w.client.Timeout = watchWait + watchWait/16 + 10*time.Second
			list = append(list, w)
			wg.Go(func() { w.run(ctx) })
		}
	}
	return list, func() {
		cancel()
		wg.Wait()
	}
}

// run follows the path until ctx ends or it saw what must not be.
func (w *watcher) run(ctx context.Context) {
	defer w.client.Close()
	for ctx.Err() == nil && w.broken == nil {
		path := fmt.Sprintf("%sindex=%d&wait=%s", w.path, w.index, watchWait)
		r := w.client.Do(ctx, "GET", path, nil)
		if r.Status != http.StatusOK && r.Status != http.StatusNotFound {
			w.client.At(w.cluster.Servers[w.rng.IntN(len(w.cluster.Servers))].HTTP)
			_ = spawn.Sleep(ctx, 20*time.Millisecond)
			continue
		}
		state := watchState{}
		var err error
		if r.Status == http.StatusOK {
			state, err = w.decode(r.Body)
		}
		w.take(state, r.Index(), err)
	}
}

// take judges one answer against the one before it.
func (w *watcher) take(state watchState, index uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers++
	switch {
	case err != nil:
		w.broken = fmt.Errorf("%s: %w", w.name, err)
	case index == 0:
		w.broken = fmt.Errorf("%s: no index", w.name)
	case index < w.index:
		w.broken = fmt.Errorf("%s: the index went back from %d to %d", w.name, w.index, index)
	}
	for name, old := range w.state {
		if now, there := state[name]; there && now < old {
			w.back = append(w.back, wentBack{name, old, now, index})
		}
	}
	w.state, w.index = state, index
}

// shows reports whether the watcher's newest state is the part of final that it watches.
func (w *watcher) shows(final watchState, unknown doubts) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for slot := range watchKeys {
		for _, name := range []string{keyName(slot), serviceName(slot)} {
			isService := name == serviceName(slot)
			if isService != strings.HasPrefix(w.name, "service") || (strings.HasPrefix(w.name, "key") && slot != 0) {
				continue
			}
			if got := w.state[name]; got != final[name] && !unknown[name][got] {
				return fmt.Errorf("%s shows %v at index %d, the final state is %v", w.name, w.state, w.index, final)
			}
		}
	}
	return nil
}

func settled(ctx context.Context, list []*watcher, final watchState, unknown doubts, limit time.Duration) error {
	return spawn.Until(ctx, limit, "every watcher to be woken with the final state", func() error {
		for _, w := range list {
			if err := w.shows(final, unknown); err != nil {
				return err
			}
		}
		return nil
	})
}

func decodePairs(body []byte) (watchState, error) {
	var list []faultrun.Pair
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	state := watchState{}
	for _, p := range list {
		n, err := strconv.Atoi(p.Text())
		if err != nil {
			return nil, err
		}
		state[p.Key] = n
	}
	return state, nil
}

func decodeService(body []byte) (watchState, error) {
	var list []struct {
		Service struct {
			ID   string
			Meta map[string]string
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	state := watchState{}
	for _, e := range list {
		n, err := strconv.Atoi(e.Service.Meta["state"])
		if err != nil {
			return nil, err
		}
		state[e.Service.ID] = n
	}
	return state, nil
}

// watchWriter writes ever growing counters.
type watchWriter struct {
	client  *faultrun.Client
	rng     *rand.Rand
	servers []*faultrun.Server
	counter int
	unknown doubts
}

func keyName(slot int) string     { return fmt.Sprint("watch/", slot) }
func serviceName(slot int) string { return fmt.Sprint("id", slot) }

// load writes while the nemesis breaks, then writes the final state into the healed cluster and returns it.
func (w *watchWriter) load(ctx context.Context, c *faultrun.Cluster, n *faultrun.Nemesis, d time.Duration) (watchState,
	error) {
	loaded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for loaded.Err() == nil {
			w.random(loaded)
			_ = spawn.Sleep(loaded, time.Duration(w.rng.IntN(10))*time.Millisecond)
		}
	})
	err := n.Run(loaded)
	cancel()
	wg.Wait()
	if err != nil {
		return nil, err
	}
	if err := c.Ready(ctx, harness.StartLimit); err != nil {
		return nil, err
	}
	return w.final(ctx)
}

func (w *watchWriter) random(ctx context.Context) {
	slot := w.rng.IntN(watchKeys)
	if w.send(ctx, slot, w.rng.IntN(2) == 0, w.rng.IntN(6) == 0) != history.OK {
		w.client.At(w.servers[w.rng.IntN(len(w.servers))].HTTP)
	}
}

func (w *watchWriter) send(ctx context.Context, slot int, service, remove bool) history.Outcome {
	w.counter++
	key, id := keyName(slot), serviceName(slot)
	name, value := key, w.counter
	if service {
		name = id
	}
	if remove {
		value = 0
	}
	var r faultrun.Reply
	switch {
	case service && remove:
		r = w.client.Do(ctx, "PUT", "/v1/catalog/deregister", fmt.Appendf(nil, `{"Node":"watched","ServiceID":%q}`, id))
	case service:
		r = w.client.Do(ctx, "PUT", "/v1/catalog/register", fmt.Appendf(nil,
			`{"Node":"watched","Address":"192.0.2.1","Service":{"ID":%q,"Service":"watched","Meta":{"state":"%d"}}}`, id,
			w.counter))
	case remove:
		r = w.client.Do(ctx, "DELETE", "/v1/kv/"+key, nil)
	default:
		r = w.client.Do(ctx, "PUT", "/v1/kv/"+key, []byte(strconv.Itoa(w.counter)))
	}
	if r.Outcome == history.Unknown {
		w.unknown.add(name, value)
	}
	return r.Outcome
}

// final writes every thing once more until it is acknowledged; the last service is removed, so that a deletion is the
// last word somewhere.
func (w *watchWriter) final(ctx context.Context) (watchState, error) {
	state := watchState{}
	for slot := range watchKeys {
		for _, service := range []bool{false, true} {
			remove := slot == watchKeys-1
			err := spawn.Until(ctx, 20*time.Second, "a final write", func() error {
				if outcome := w.send(ctx, slot, service, remove); outcome != history.OK {
					w.client.At(w.servers[w.rng.IntN(len(w.servers))].HTTP)
					return errors.New(string(outcome))
				}
				return nil
			})
			switch {
			case err != nil:
				return nil, err
			case !remove && service:
				state[serviceName(slot)] = w.counter
			case !remove:
				state[keyName(slot)] = w.counter
			}
		}
	}
	return state, nil
}
