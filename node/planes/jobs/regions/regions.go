// Package regions is a server's way to the other regions of the jobs plane: it finds out which there are, and has
// their servers answer requests.
//
// The servers of a region are those of one datacenter. Gossip says where servers of other datacenters are; which region
// they are is what they answer themselves, on a connection on which they have shown, where there is TLS, the
// certificate of a server of that datacenter (core/wan). A request, and the token in it, goes only to a server that
// said so just before, and crosses once.
package regions

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// MethodName is the RPC that tells a server's region, MethodHTTP the streaming one that carries a whole request to it.
const (
	MethodName = "jobs.region"
	MethodHTTP = "jobs.region.http"
)

const (
	// fresh is how long the names of the regions are believed without a question.
	fresh = 5 * time.Second
	// again is the pause between two rounds of questions for a name that nobody said before.
	again = time.Second
	// patience is how long a server may take to tell its region, search how long all that are asked for one request.
	patience = 2 * time.Second
	search   = 4 * time.Second
	// atOnce bounds the questions on their way, tries the servers that are asked before one request is given up.
	atOnce = 8
	tries  = 3
)

// Config describes the ways.
type Config struct {
	Region string // this server's
	Paths  *wan.Paths
	Clock  clock.Clock
	// Call bounds a request that does not wait for changes.
	Call time.Duration
	// API answers what other regions pass on.
	API func() http.Handler
}

// Regions are the other regions. Safe for concurrent use.
type Regions struct {
	cfg   Config
	round chan struct{} // held by who asks

	mu   sync.Mutex
	at   time.Time         // the end of the last round
	last map[string]string // the region of each datacenter, as a server of it said last
}

// New makes the ways. They start nothing.
func New(cfg Config) *Regions {
	return &Regions{cfg: cfg, round: make(chan struct{}, 1), last: map[string]string{}}
}

// Name implements MethodName.
func (g *Regions) Name(context.Context, []byte) ([]byte, error) { return []byte(g.cfg.Region), nil }

// Names implements nomadrows.Regions.
func (g *Regions) Names() []string {
	g.learn(context.Background(), fresh)
	var list []string
	for _, region := range g.known() {
		if region != g.cfg.Region {
			list = append(list, region)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Servers implements nomadrows.Regions.
func (g *Regions) Servers() (list []nomadrows.Server) {
	g.learn(context.Background(), fresh)
	known := g.known()
	for _, p := range g.cfg.Paths.All() {
		name, dc, usable := p.To()
		region := known[dc]
		if region == "" || region == g.cfg.Region {
			continue
		}
		list = append(list, nomadrows.Server{Name: strings.TrimSuffix(name, "."+dc), Address: p.Addr, Datacenter: dc,
			Region: region, Status: map[bool]string{true: "alive", false: "failed"}[usable]})
	}
	return list
}

// known is the region of each datacenter that gossip still knows.
func (g *Regions) known() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]string{}
	for _, p := range g.cfg.Paths.All() {
		_, dc, _ := p.To()
		if region := g.last[dc]; region != "" {
			out[dc] = region
		}
	}
	return out
}

// learn asks each datacenter for its region, unless that was done within age. One that does not answer keeps its name.
func (g *Regions) learn(ctx context.Context, age time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, search)
	defer cancel()
	select {
	case g.round <- struct{}{}:
		defer func() { <-g.round }()
	case <-ctx.Done():
		return
	}
	g.mu.Lock()
	old := g.at.IsZero() || g.cfg.Clock.Since(g.at) >= age
	g.mu.Unlock()
	if !old {
		return
	}
	servers := map[string][]*wan.Path{}
	for _, p := range g.cfg.Paths.All() {
		if _, dc, usable := p.To(); usable {
			servers[dc] = append(servers[dc], p)
		}
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for dc, list := range servers {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if _, region := g.first(ctx, list, ""); region != "" {
				g.mu.Lock()
				g.last[dc] = region
				g.mu.Unlock()
			}
		})
	}
	wg.Wait()
	g.mu.Lock()
	g.at = g.cfg.Clock.Now()
	g.mu.Unlock()
}

// first is a server of the list that says now that it is of a region; "" is any.
func (g *Regions) first(ctx context.Context, list []*wan.Path, wanted string) (*wan.Path, string) {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	left := tries
	for _, p := range list {
		if left == 0 || ctx.Err() != nil {
			break
		}
		callCtx, cancel := context.WithTimeout(ctx, patience)
		said, err := g.cfg.Paths.Client.Call(callCtx, p.Addr, MethodName, nil)
		cancel()
		if errkind.Is(err, errkind.NotFound) {
			continue // it runs no jobs
		}
		left--
		if region := string(said); err == nil && region != "" && (wanted == "" || region == wanted) {
			return p, region
		}
	}
	return nil, ""
}

// reach finds a server of a region.
func (g *Regions) reach(ctx context.Context, region string) (*wan.Path, error) {
	dcs := g.of(region)
	if len(dcs) != 1 {
		g.learn(ctx, again)
		dcs = g.of(region)
	}
	switch {
	case len(dcs) == 0:
		return nil, errkind.New(errkind.Unavailable, nomadrows.NoPath)
	case len(dcs) > 1:
		return nil, errkind.Errorf(errkind.Conflict, "the datacenters %s all say that they are region %q: give each a "+
			"region of its own (jobs.region)", strings.Join(dcs, ", "), region)
	}
	ctx, cancel := context.WithTimeout(ctx, search)
	defer cancel()
	var list []*wan.Path
	for _, p := range g.cfg.Paths.All() {
		if _, dc, usable := p.To(); usable && dc == dcs[0] {
			list = append(list, p)
		}
	}
	if p, _ := g.first(ctx, list, region); p != nil {
		return p, nil
	}
	return nil, errkind.Errorf(errkind.Unavailable, "%s: no server of region %q, datacenter %s, answers",
		nomadrows.NoPath, region, dcs[0])
}

// of are the datacenters that said that they are a region.
func (g *Regions) of(region string) (dcs []string) {
	for dc, name := range g.known() {
		if name == region {
			dcs = append(dcs, dc)
		}
	}
	slices.Sort(dcs)
	return dcs
}
