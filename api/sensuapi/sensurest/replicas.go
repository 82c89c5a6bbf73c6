package sensurest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/mirror"
	"corbel.dev/corbel/monitor/objects"
)

// maxReplicas and maxReplicaBytes bound a page.
const (
	maxReplicas     = 1000
	maxReplicaBytes = 16 << 20
)

// federation answers clusters that keep replicas of this one's objects.
type federation struct{ *request }

// route finds who answers /api/corbel/v1/replicas/TYPE and /api/corbel/v1/replicators.
func (q federation) route(words []string) func() error {
	switch {
	case len(words) == 1 && words[0] == "replicators":
		return func() error { return q.own("list", "etcd-replicators", q.replicators) }
	case len(words) == 2 && words[0] == "replicas":
		typ, ok := monitor.TypeOf(words[1])
		if _, may := monitor.ReplicatedType(typ.APIVersion, typ.Kind); !ok || !may {
			return nil
		}
		q.namespace = httpx.Query(q.r.URL.RawQuery).Value("namespace")
		return func() error { return q.own(monitor.VerbReplicate, typ.Name, func() error { return q.replicas(typ) }) }
	}
	return nil
}

// own serves a path of Corbel's own that is only read.
func (q federation) own(verb, resource string, serve func() error) error {
	if q.r.Method != http.MethodGet {
		return q.notAllowed("GET")
	}
	if err := q.may(verb, resource, q.namespace, ""); err != nil {
		return err
	}
	return serve()
}

// replicators answers what came of this cluster's replicators, as the plane's leader knows it.
func (q federation) replicators() error {
	if q.cfg.Replicators == nil {
		return q.answer(http.StatusOK, []mirror.Status{})
	}
	list, err := q.cfg.Replicators(q.r.Context())
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, list)
}

// replicas answers with a page of objects as they are stored, but for those that came from the cluster that asks.
func (q federation) replicas(typ monitor.Type) error {
	if q.namespace != "" && !typ.Scoped {
		return invalid(fmt.Errorf("namespace: %s belongs to no namespace", typ.Kind))
	}
	c, err := q.pageOf()
	if err != nil {
		return err
	}
	page := mirror.Page{Cluster: q.cfg.Cluster().ID, Objects: []mirror.Object{}}
	namespace, name, _ := c.begin()
	asks := httpx.Query(q.r.URL.RawQuery).Value("for")
	view, size, last := q.cfg.Resources.View(), 0, ""
	view.List(typ.Name, q.namespace, namespace, name, func(i *objects.Item) bool {
		if len(page.Objects) == c.limit || size > maxReplicaBytes {
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(last))
			return false
		}
		if from := view.Get(monitor.CopyType, "", monitor.CopyName(i.Type, i.Namespace, i.Name)); from != nil && asks != "" &&
			from.Object().(*monitor.Copy).Origin == asks {
			return true
		}
		page.Objects = append(page.Objects, mirror.Object{Namespace: i.Namespace, Name: i.Name, Encoded: i.Encoded})
		size, last = size+len(i.Encoded), i.Namespace+"\x00"+i.Name
		return true
	})
	return q.answer(http.StatusOK, page)
}

// pageOf reads the limit and the place of a page.
func (q federation) pageOf() (c choice, err error) {
	if text := httpx.Query(q.r.URL.RawQuery).Value("fieldSelector"); strings.TrimSpace(text) != "" {
		return c, invalid(errors.New("fieldSelector: there are none here"))
	}
	q.kind = &kind{}
	if c, err = (lists(q)).chosen(); err == nil && (c.limit == 0 || c.limit > maxReplicas) {
		c.limit = maxReplicas
	}
	return c, err
}
