// Package usageruns has the scenario of the usage plane: a history of events, retries, duplicates, late ones and
// corrections while servers are killed, and at the end an exact model that says what every estimate must be.
package usageruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
	"corbel.dev/corbel/test/kafka"
)

// Usage is a run.
type Usage struct {
	Servers int // 1 or 3
	Cycles  int // of load, a kill -9, and a restart
	Senders int // default 3
	// Load is how long the load of a cycle lasts at most; default a second.
	Load time.Duration
	// Brokers, where it is not nil, has the servers' log, and loses a broker in most cycles.
	Brokers *kafka.Cluster
}

// Report tells what a run did.
type Report struct {
	Cycles, Brokers, Events, Retries, Duplicates, Late, Voids, Judged int
	// Refused are the retries after an answer that was an error; the others had none.
	Refused int
	// Starts are the times from a start until all servers served again.
	Starts []time.Duration
}

// config has servers take over soon, so that cycles are short; it lacks where the log is.
const config = `usage {
	own_planes = false
	log { %s }
	state { snapshot = "1s" }
}`

// usual is the log of servers whose disks have it.
const usual = `failover = "3s" alone_after = "3s"`

// late is how old an event may be to be counted, and old how old those are that may not.
const late, old = time.Hour, 3 * time.Hour

// event is one as it is sent, with what the model must know.
type event struct {
	ID       string            `json:"id"`
	Source   string            `json:"source"`
	Tenant   string            `json:"tenant"`
	Product  string            `json:"product"`
	Time     int64             `json:"time"`
	Value    int64             `json:"value,omitempty"`
	Identity map[string]string `json:"identity,omitempty"`
	Tags     map[string]string `json:"tags"`
}

// model is what must have been counted. Senders share it.
type model struct {
	mu     sync.Mutex // guards what follows
	events map[string]event
	report *Report
}

func (m *model) note(f func(*Report)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.report)
}

// Run does cycles on one cluster.
func Run(ctx context.Context, l *faultrun.Lab, cfg Usage, seed uint64) (report Report, err error) {
	if cfg.Senders == 0 {
		cfg.Senders = 3
	}
	if cfg.Load == 0 {
		cfg.Load = time.Second
	}
	log := usual
	if cfg.Brokers != nil {
		log = fmt.Sprintf(`failover = "3s" kafka { brokers = ["%s"] }`, strings.Join(cfg.Brokers.Brokers, `", "`))
	}
	c, err := l.Open(ctx, harness.Config{Servers: cfg.Servers, Power: true, HCL: []string{fmt.Sprintf(config, log)}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(seed, 17))
	m := &model{events: map[string]event{}, report: &report}
	if err := define(ctx, c); err != nil {
		return report, errors.Join(err, c.Damage())
	}
	senders := m.senders(c, cfg.Senders, seed)
	defer senders.close()
	for range cfg.Cycles {
		if err := cycle(ctx, c, cfg, r, senders, &report); err != nil {
			return report, fmt.Errorf("cycle %d: %w\n%s", report.Cycles+1, errors.Join(err, c.Damage()), c.Logs())
		}
	}
	if err := m.judge(ctx, c); err != nil {
		return report, fmt.Errorf("after %d cycles: %w\n%s", report.Cycles, errors.Join(err, c.Damage()), c.Logs())
	}
	if report.Events < cfg.Cycles {
		return report, fmt.Errorf("only %d events were taken in %d cycles: nothing was tested", report.Events, cfg.Cycles)
	}
	return report, c.Damage()
}

// cycle loads, kills one server or all at a random instant, restarts, and has every sender end what it has begun.
func cycle(ctx context.Context, c *faultrun.Cluster, cfg Usage, r *rand.Rand, senders rollout, report *Report) error {
	var took time.Duration
	err := senders.beside(ctx, func() (err error) {
		took, err = crash(ctx, c, cfg, r, report)
		return err
	})
	if err == nil {
		report.Cycles++
		report.Starts = append(report.Starts, took)
	}
	return err
}

// crash kills and restarts, and returns how long it took until all served again.
func crash(ctx context.Context, c *faultrun.Cluster, cfg Usage, r *rand.Rand, report *Report) (time.Duration, error) {
	_ = spawn.Sleep(ctx, cfg.Load/8+time.Duration(r.Int64N(int64(cfg.Load-cfg.Load/8))))
	victims := c.Servers
	if len(c.Servers) > 1 && r.IntN(4) > 0 {
		victims = []*faultrun.Server{c.Servers[r.IntN(len(c.Servers))]}
	}
	lost, broker := 0, -1
	if b := cfg.Brokers; b != nil && r.IntN(4) > 0 {
		broker = r.IntN(len(b.Brokers))
		b.Kill(broker)
		if r.IntN(3) == 0 {
			victims = nil
		}
	}
	for _, s := range victims {
		_ = s.Control.Kill() // all at once
	}
	for _, s := range victims {
		if err := s.Crash(r, &lost); err != nil {
			return 0, err
		}
	}
	if len(victims) < len(c.Servers) {
		_ = spawn.Sleep(ctx, time.Duration(r.IntN(5000))*time.Millisecond) // the others go on, and take over
	}
	began := time.Now()
	err := c.Start()
	if err == nil {
		err = c.Ready(ctx, harness.StartLimit)
	}
	if broker >= 0 {
		err = errors.Join(err, cfg.Brokers.Start(broker), cfg.Brokers.Wait(ctx, broker))
		report.Brokers++
	}
	return time.Since(began), err
}

var products = map[string]string{
	"calls": `{"kind":"sum","tags":["team"],"late":"1h"}`,
	"peak":  `{"kind":"max","tags":["team"],"late":"1h"}`,
	"seats": `{"kind":"unique","identity":["user"],"tags":["team"],"late":"1h"}`,
}

func define(ctx context.Context, c *faultrun.Cluster) error {
	for name, text := range products {
		err := spawn.Until(ctx, harness.StartLimit, "the product "+name, func() error {
			return asked(c.Admin.Do(ctx, "PUT", "/v1/usage/products/"+name, []byte(text)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func asked(r faultrun.Reply) error {
	if r.Status/100 != 2 {
		return errors.New(r.String())
	}
	return nil
}

// senders makes some that share the model.
func (m *model) senders(c *faultrun.Cluster, many int, seed uint64) (group rollout) {
	for i := range many {
		group = append(group, &sender{name: fmt.Sprint("s", i), m: m, c: c, client: faultrun.NewClient(c.Servers[0].HTTP),
			r: rand.New(rand.NewPCG(seed, uint64(100+i)))})
	}
	return group
}

func (group rollout) close() {
	for _, s := range group {
		s.client.Close()
	}
}

// sender sends one batch after the other, and each until it is answered, wherever.
type sender struct {
	name   string
	m      *model
	c      *faultrun.Cluster
	client *faultrun.Client
	r      *rand.Rand
	next   int
	sent   [][]event // some that may come again
	// away are servers that did not take a connection, and when: as a load balancer does, it passes over them for a
	// while. Nil passes over none.
	away map[string]time.Time
	at   string // where it sent last
	// keeps says that it takes nothing out again: a correction needs the log, which a server may have lost.
	keeps bool
}

// awayFor is how long a sender passes over a server.
const awayFor = 500 * time.Millisecond

// patience is how long one thing may be tried.
const patience = 2 * time.Minute

// run sends until `until` ends; what was begun is ended.
func (s *sender) run(ctx, until context.Context) error {
	for until.Err() == nil {
		var err error
		switch n := s.r.IntN(20); {
		case n == 0 && len(s.sent) > 0 && !s.keeps:
			err = s.void(ctx)
		case n < 5 && len(s.sent) > 0:
			err = s.again(ctx)
		default:
			err = s.fresh(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) make() event {
	s.next++
	e := event{ID: strconv.Itoa(s.next), Source: s.name, Tenant: fmt.Sprint("t", s.r.IntN(3)),
		Product: []string{"calls", "peak", "seats"}[s.r.IntN(3)], Tags: map[string]string{"team": fmt.Sprint(s.r.IntN(3))},
		Time: time.Now().Add(-time.Duration(s.r.IntN(600)) * time.Second).UnixNano()}
	if s.r.IntN(25) == 0 {
		e.Time = time.Now().Add(-old).UnixNano()
	}
	if e.Product == "seats" {
		e.Identity = map[string]string{"user": fmt.Sprint("u", s.r.IntN(400))}
	} else {
		e.Value = 1 + s.r.Int64N(1_000_000)
	}
	return e
}

func (s *sender) fresh(ctx context.Context) error {
	batch := make([]event, 1+s.r.IntN(20))
	for i := range batch {
		batch[i] = s.make()
	}
	if err := s.post(ctx, batch); err != nil {
		return err
	}
	if s.sent = append(s.sent, batch); len(s.sent) > 50 {
		s.sent = slices.Delete(s.sent, 0, 25)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, e := range batch {
		s.m.report.Events++
		if time.Since(time.Unix(0, e.Time)) < late {
			s.m.events[e.Source+"/"+e.ID] = e
		}
	}
	return nil
}

// again sends what was sent, in other pieces.
func (s *sender) again(ctx context.Context) error {
	batch := slices.Concat(s.sent[s.r.IntN(len(s.sent))], s.sent[s.r.IntN(len(s.sent))])
	s.r.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	return s.post(ctx, batch)
}

// post sends a batch until a server answers for all of it.
func (s *sender) post(ctx context.Context, batch []event) error {
	text, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	var answer struct {
		Accepted, Duplicates, Late int
		Rejected                   []any
	}
	tries, refused := 0, 0
	err = spawn.Until(ctx, patience, "an answer to a batch", func() error {
		tries++
		r := s.anywhere().Do(ctx, "POST", "/v1/usage/events", text)
		if err := asked(r); err != nil {
			if r.Status != 0 {
				refused++
			} else if s.away != nil && r.Outcome == history.Failed {
				s.away[s.at] = time.Now()
			}
			return err
		}
		return json.Unmarshal(r.Body, &answer)
	})
	if err != nil {
		return err
	}
	if len(answer.Rejected) > 0 || answer.Accepted+answer.Duplicates+answer.Late != len(batch) {
		return fmt.Errorf("a batch of %d events is answered with %+v", len(batch), answer)
	}
	s.m.note(func(r *Report) {
		r.Retries, r.Duplicates, r.Late = r.Retries+tries-1, r.Duplicates+answer.Duplicates, r.Late+answer.Late
		r.Refused += refused
	})
	return nil
}

// anywhere is a client of some server.
func (s *sender) anywhere() *faultrun.Client {
	all := s.c.Servers
	for range all {
		s.at = all[s.r.IntN(len(all))].HTTP
		if time.Since(s.away[s.at]) > awayFor {
			break
		}
	}
	return s.client.At(s.at)
}

// void takes an event out. To do so twice, after an answer that was lost, is to do it once.
func (s *sender) void(ctx context.Context) error {
	batch := s.sent[s.r.IntN(len(s.sent))]
	e := batch[s.r.IntN(len(batch))]
	text, err := json.Marshal(map[string]any{"kind": "void", "tenant": e.Tenant, "product": e.Product, "source": e.Source,
		"ids": []string{e.ID}, "reason": "a test"})
	if err != nil {
		return err
	}
	err = spawn.Until(ctx, patience, "a correction", func() error {
		return asked(s.anywhere().Do(ctx, "POST", "/v1/usage/corrections", text))
	})
	if err == nil {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		delete(s.m.events, e.Source+"/"+e.ID)
		s.m.report.Voids++
	}
	return err
}

// judge compares every estimate, on every server, with the model.
func (m *model) judge(ctx context.Context, c *faultrun.Cluster) error {
	err := spawn.Until(ctx, patience, "all corrections are done", func() error {
		r := c.Admin.Do(ctx, "GET", "/v1/usage/corrections", nil)
		var out struct {
			Corrections []struct {
				ID, Status, Error string
			}
		}
		if err := errors.Join(asked(r), json.Unmarshal(r.Body, &out)); err != nil {
			return err
		}
		for _, one := range out.Corrections {
			if one.Status == "failed" {
				return spawn.Hopeless(fmt.Errorf("correction %s failed: %s", one.ID, one.Error))
			}
			if one.Status != "done" {
				return fmt.Errorf("correction %s is %s", one.ID, one.Status)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	now := time.Now()
	span := url.Values{"from": {now.Add(-late).Truncate(time.Minute).Format(time.RFC3339)},
		"to": {now.Add(time.Hour).Truncate(time.Minute).Format(time.RFC3339)}, "by": {"team"}}
	want := m.expected()
	for _, s := range c.Servers {
		for _, of := range slices.Sorted(maps.Keys(want)) {
			if err := m.compare(ctx, c.Admin.At(s.HTTP), of, span, want[of]); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// series is a tenant's product.
type series struct{ tenant, product string }

func (s series) String() string { return s.tenant + "/" + s.product }

// expected is the exact value of each series, by team; "" is the total.
func (m *model) expected() map[string]map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, users := map[string]map[string]int64{}, map[string]bool{}
	for n := range 3 {
		for product := range products {
			out[series{fmt.Sprint("t", n), product}.String()] = map[string]int64{"": 0}
		}
	}
	for _, e := range m.events {
		of := series{e.Tenant, e.Product}.String()
		for _, team := range []string{"", e.Tags["team"]} {
			switch e.Product {
			case "calls":
				out[of][team] += e.Value
			case "peak":
				out[of][team] = max(out[of][team], e.Value)
			default:
				if key := of + "/" + team + "/" + e.Identity["user"]; !users[key] {
					users[key] = true
					out[of][team]++
				}
			}
		}
	}
	return out
}

// compare asks for a series until the answer is complete, and compares it.
func (m *model) compare(ctx context.Context, client *faultrun.Client, of string, span url.Values,
	want map[string]int64,
) error {
	var s series
	for i := range of {
		if of[i] == '/' {
			s = series{of[:i], of[i+1:]}
		}
	}
	q := maps.Clone(span)
	q.Set("tenant", s.tenant)
	q.Set("product", s.product)
	var answer struct {
		Value        *int64
		Completeness struct{ Ratio float64 }
		By           []struct {
			Tag   string
			Other bool
			Value int64
		}
	}
	err := spawn.Until(ctx, patience, "a complete answer", func() error {
		r := client.Do(ctx, "GET", "/v1/usage/estimates?"+q.Encode(), nil)
		if err := errors.Join(asked(r), json.Unmarshal(r.Body, &answer)); err != nil {
			return err
		}
		if answer.Completeness.Ratio < 1 {
			return errors.New(r.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	got := map[string]int64{"": 0}
	if answer.Value != nil {
		got[""] = *answer.Value
	}
	for _, row := range answer.By {
		got[row.Tag] = row.Value
	}
	maps.DeleteFunc(got, func(team string, v int64) bool { return team != "" && v == 0 })
	if !maps.Equal(got, want) {
		return fmt.Errorf("%s is %v, and %v was sent", of, got, want)
	}
	m.note(func(r *Report) { r.Judged += len(want) })
	return nil
}
