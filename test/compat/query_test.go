package compat

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/miekg/dns"
)

func TestPreparedQueries(t *testing.T) {
	client := consul(t)
	queries := client.PreparedQuery()
	for node, status := range map[string]string{"pq-1": api.HealthPassing, "pq-2": api.HealthPassing,
		"pq-3": api.HealthCritical} {
		_, err := client.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "10.44.0." + node[3:],
			Service: &api.AgentService{Service: "pq-web", Port: 8000, Tags: []string{"v1"}},
			Check:   &api.AgentCheck{CheckID: "up", ServiceID: "pq-web", Status: status}}, nil)
		must(t, err)
	}
	id, _, err := queries.Create(&api.PreparedQueryDefinition{Name: "pq-static",
		Service: api.ServiceQuery{Service: "pq-web", Tags: []string{"v1"}}, DNS: api.QueryDNSOptions{TTL: "9s"}}, nil)
	must(t, err)
	_, _, err = queries.Create(&api.PreparedQueryDefinition{Name: "pq-any-",
		Template: api.QueryTemplate{Type: "name_prefix_match", Regexp: "^pq-any-(.+)$"},
		Service:  api.ServiceQuery{Service: "pq-${match(1)}"}}, nil)
	must(t, err)
	for _, name := range []string{"pq-static", id, "pq-any-web"} {
		got, _, err := queries.Execute(name, nil)
		must(t, err)
		if len(got.Nodes) != 2 || got.Service != "pq-web" || got.Datacenter != "dc1" || got.Failovers != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	m, err := ask(t, server, "udp", "pq-static.query.consul.", dns.TypeA)
	must(t, err)
	if len(m.Answer) != 2 || m.Answer[0].Header().Ttl != 9 {
		t.Errorf("over DNS: %v", m)
	}
	if m, err := ask(t, server, "udp", "_pq-any-web._tcp.query.consul.", dns.TypeSRV); err != nil || len(m.Answer) != 2 {
		t.Errorf("SRV of a template: %v %v", m, err)
	}
	if m, err := ask(t, server, "udp", "nothing-like-it.query.consul.", dns.TypeA); err != nil ||
		m.Rcode != dns.RcodeNameError {
		t.Errorf("an unknown query: %v %v", m, err)
	}
	defs, _, err := queries.List(nil)
	must(t, err)
	if len(defs) != 2 {
		t.Errorf("%d queries", len(defs))
	}
	def := defs[0]
	for _, d := range defs {
		if d.ID == id {
			def = d
		}
	}
	def.Service.OnlyPassing = true
	_, err = queries.Update(def, nil)
	must(t, err)
	got, _, err := queries.Get(id, nil)
	must(t, err)
	if len(got) != 1 || !got[0].Service.OnlyPassing {
		t.Errorf("after the update: %+v", got)
	}
	for _, d := range defs {
		_, err = queries.Delete(d.ID, nil)
		must(t, err)
	}
	if _, _, err := queries.Execute("pq-static", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("after the end: %v", err)
	}
}
