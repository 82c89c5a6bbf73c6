package uiplane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	"corbel.dev/corbel/node/planes/ui/farplaces"
	"corbel.dev/corbel/node/planes/ui/planeasker"
	"corbel.dev/corbel/node/planes/ui/rowlists"
)

// The central view: what other clusters of the monitor plane watch, beside this one's. Which ones there are is said by
// Cluster objects (federation/v1). They are asked with the person's own login: an API key that was replicated there, or
// an access token where the clusters sign with one key.

// clusters asks them, with the login of whoever looks.
type clusters struct {
	ask  *planeasker.Asker
	far  *farplaces.Places
	web  *monitorplane.Web
	http *http.Client
	own  string // the datacenter: the name of this one, where nothing names it
	now  func() time.Time
}

// cluster is what is known of one.
type cluster struct {
	name, page string // page is its web UI
	here       bool
	farplaces.Heard
}

// watchedThere is what one said.
type watchedThere struct {
	id       string
	failing  []incidentRow
	entities []entityRow
}

// clusterRow is a cluster in a line.
type clusterRow struct {
	farplaces.Row
	Entities int    `json:"entities"` // -1 is not known
	Failing  int    `json:"failing"`
	Page     string `json:"page,omitempty"`
}

// entityRow is an entity of some cluster. It implements rowfilter.Row.
type entityRow struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Class     string `json:"class"`
	State     string `json:"state"` // of the worst check that nobody silenced
	Failing   int    `json:"failing"`
	Last      int64  `json:"last"` // ms since 1970
}

func (e entityRow) Words() []string { return []string{e.Entity, e.Cluster} }

func (e entityRow) Values(field string) []string {
	return []string{map[string]string{"cluster": e.Cluster, "namespace": e.Namespace, "entity": e.Entity,
		"class": e.Class, "state": e.State}[field]}
}

const (
	mostClusters = 64
	mostThere    = 5_000 // events and entities that are taken of a cluster
)

func (c *cluster) row() clusterRow {
	row := clusterRow{Row: c.Heard.Row(c.name, c.here), Entities: -1, Failing: -1, Page: c.page}
	if w, ok := c.Value.(*watchedThere); ok {
		row.Entities, row.Failing = len(w.entities), len(w.failing)
	}
	return row
}

// everywhereTopic is one list of what fails (of=incidents), or of what is watched (of=entities), in all clusters.
func (u *UI) everywhereTopic() *topic {
	return &topic{every: farplaces.Every, rights: u.rightsOfAll, make: func(ctx context.Context, p *uiapi.Person,
		q url.Values) (any, error) {
		if u.monitor == nil || p.Monitor == "" {
			return nil, errNoMonitorLogin
		}
		all, err := u.clusters.look(ctx, p)
		if err != nil {
			return nil, err
		}
		failing, entities := []incidentRow{}, []entityRow{}
		for i := range all {
			w, ok := all[i].Value.(*watchedThere)
			if !ok {
				continue
			}
			for _, row := range w.failing {
				row.Cluster = all[i].name
				failing = append(failing, row)
			}
			for _, row := range w.entities {
				row.Cluster = all[i].name
				entities = append(entities, row)
			}
		}
		if q.Get("of") == "entities" {
			slices.SortStableFunc(entities, func(a, b entityRow) int {
				return cmp.Or(cmp.Compare(b.Failing, a.Failing), strings.Compare(a.Entity, b.Entity))
			})
			return rowlists.Paged(entities, q, "cluster", "namespace", "entity", "class", "state"), ctx.Err()
		}
		sortIncidents(failing)
		return rowlists.Paged(failing, q, "cluster", "namespace", "entity", "check", "handler", "silenced", "state"),
			ctx.Err()
	}}
}

// look has all clusters asked, this one first, and gives what is known of each.
func (c *clusters) look(ctx context.Context, p *uiapi.Person) ([]cluster, error) {
	if p.Monitor == "" {
		return nil, errNoMonitorLogin
	}
	var named []struct {
		Metadata names `json:"metadata"`
		Spec     struct {
			URLs []string `json:"api_urls"`
		} `json:"spec"`
	}
	err := c.ask.Get(ctx, p, "monitor", "/api/enterprise/federation/v1/clusters", &named)
	who, rights := *p, c.web.Who(p.Monitor)
	look := func() []cluster {
		out := []cluster{{name: c.own, here: true, Heard: c.far.Look("cluster\x00\x00"+rights,
			func(ctx context.Context) (any, error) { return c.one(ctx, "", &who) })}}
		for _, n := range named[:min(len(named), mostClusters)] {
			one := cluster{name: n.Metadata.Name, Heard: c.far.Look("cluster\x00"+strings.Join(n.Spec.URLs, " ")+"\x00"+
				rights, func(ctx context.Context) (any, error) { return c.any(ctx, n.Spec.URLs, &who) })}
			if len(n.Spec.URLs) > 0 {
				one.page = strings.TrimSuffix(n.Spec.URLs[0], "/") + "/ui/incidents"
			}
			out = append(out, one)
		}
		return out
	}
	out := look()
	places := make([]farplaces.Heard, len(out))
	for i := range out {
		places[i] = out[i].Heard
	}
	farplaces.Settle(ctx, places)
	return withoutSelf(look()), err
}

// withoutSelf takes this cluster out of those that are named, where each names them all.
func withoutSelf(all []cluster) []cluster {
	own, ok := all[0].Value.(*watchedThere)
	return slices.DeleteFunc(all, func(c cluster) bool {
		w, answered := c.Value.(*watchedThere)
		if c.here || !ok || !answered || own.id == "" || w.id != own.id {
			return false
		}
		all[0].name = c.name
		return true
	})
}

// any asks the addresses of a cluster one after another, each for its part of the time.
func (c *clusters) any(ctx context.Context, urls []string, p *uiapi.Person) (w *watchedThere, err error) {
	err = errkind.New(errkind.Unavailable, "it has no api_urls")
	for _, at := range urls {
		within, cancel := context.WithTimeout(ctx, farplaces.Time/time.Duration(len(urls)))
		w, err = c.one(within, at, p)
		cancel()
		if err == nil || errkind.Is(err, errkind.Denied) {
			return w, err
		}
	}
	return nil, err
}

// one asks one at an address; "" is this one.
func (c *clusters) one(ctx context.Context, at string, p *uiapi.Person) (*watchedThere, error) {
	var id string
	var events []event
	var silences []silence
	var entities []struct {
		Metadata names  `json:"metadata"`
		Class    string `json:"entity_class"`
		Last     int64  `json:"last_seen"`
	}
	for _, q := range []struct {
		path   string
		into   any
		spared bool // what is left out where the person may not have it
	}{
		{"/api/core/v2/cluster/id", &id, true},
		{"/api/core/v2/events?limit=" + fmt.Sprint(mostThere) + "&fieldSelector=" +
			url.QueryEscape(`event.check.status != "0"`), &events, false},
		{"/api/core/v2/silenced", &silences, true},
		{"/api/core/v2/entities?limit=" + fmt.Sprint(mostThere), &entities, true},
	} {
		err := c.get(ctx, at, q.path, p, q.into)
		if err != nil && !(q.spared && (errkind.Is(err, errkind.Denied) || errkind.Is(err, errkind.NotFound))) {
			return nil, err
		}
	}
	w := &watchedThere{id: id, failing: failingOf(events, silences, c.now().Unix())}
	worst, count := map[names]string{}, map[names]int{}
	for i := range w.failing {
		row := &w.failing[i]
		key := names{row.Entity, row.Namespace}
		if count[key]++; len(row.Silenced) == 0 && worst[key] == "" { // the worst comes first
			worst[key] = row.State
		}
	}
	for _, e := range entities {
		w.entities = append(w.entities, entityRow{Namespace: e.Metadata.Namespace, Entity: e.Metadata.Name, Class: e.Class,
			State: cmp.Or(worst[e.Metadata], "passing"), Failing: count[e.Metadata], Last: e.Last * 1000})
	}
	return w, nil
}

func (c *clusters) get(ctx context.Context, at, path string, p *uiapi.Person, into any) error {
	if at == "" {
		return c.ask.Get(ctx, p, "monitor", path, into)
	}
	if err := mayShow(at); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(at, "/")+path, nil)
	if err != nil {
		return err
	}
	if err := c.web.Authorize(r, p.Monitor); err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return errkind.E(errkind.Unavailable, "", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read, or is not wanted
	body, err := io.ReadAll(io.LimitReader(answer.Body, planeasker.MaxAnswer))
	switch {
	case err != nil:
		return errkind.E(errkind.Unavailable, "", err)
	case answer.StatusCode == http.StatusUnauthorized:
		return errkind.New(errkind.Denied, strings.TrimPrefix(notKnownThere, "this login is not known there: "))
	case answer.StatusCode == http.StatusForbidden:
		return errkind.New(errkind.Denied, planeasker.Words(body))
	case answer.StatusCode == http.StatusNotFound:
		return errkind.New(errkind.NotFound, planeasker.Words(body))
	case answer.StatusCode != http.StatusOK:
		return errkind.Errorf(errkind.Unavailable, "it answers %s", answer.Status)
	}
	return json.Unmarshal(body, into)
}

// farClient asks other clusters. A login is not shown to whom an answer leads.
func farClient() *http.Client {
	return &http.Client{Timeout: farplaces.Time, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: farplaces.Time},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
