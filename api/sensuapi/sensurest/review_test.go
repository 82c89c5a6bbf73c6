package sensurest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/api/sensuapi/selectors"
	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/monitor/business"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/monitor/subscribers"
)

// reviewed is a rig whose programs are read.
func reviewed(t *testing.T) *rig {
	engine := script.New(script.Config{})
	return newRigOf(t, subscribers.Config{}, func(c *Config) {
		c.Compiles = func(ctx context.Context, source string, body bool) error {
			read := script.NewProgram
			if body {
				read = script.NewBody
			}
			p, err := read(source)
			if err != nil {
				return err
			}
			return engine.Check(ctx, p)
		}
	})
}

const (
	filtersPath = "/api/core/v2/namespaces/default/filters"
	checksPath  = "/api/core/v2/namespaces/default/checks"
)

// A filter whose JavaScript does not compile would let every event pass, or none: it is refused, by all doors, and
// the error names the expression.
func TestProgramsAreRead(t *testing.T) {
	g := reviewed(t)
	for path, body := range map[string]string{
		filtersPath: `{"metadata":{"name":"f"},"action":"allow","expressions":["true","event.check.status =="]}`,
		"/api/core/v2/namespaces/default/mutators": `{"metadata":{"name":"m"},"type":"javascript","eval":"return }"}`,
		checksPath: `{"metadata":{"name":"c"},"command":"x","interval":5,` +
			`"subscriptions":["a"],"proxy_requests":{"entity_attributes":["entity.("]}}`,
		"/api/core/v2/namespaces/default/assets": `{"metadata":{"name":"a"},"url":"https://example.com/a.tgz","sha512":"` +
			strings.Repeat("0", 128) + `","filters":["entity.system.os = "]}`,
	} {
		a := g.want(http.StatusBadRequest, "POST", path, body)
		if !strings.Contains(a.body, "[") && !strings.Contains(a.body, "eval") || !strings.Contains(a.body, "JavaScript") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if a := g.want(http.StatusBadRequest, "PUT", filtersPath+"/f",
		`{"metadata":{"name":"f","namespace":"default"},"action":"allow","expressions":["a b"]}`); !strings.Contains(a.body,
		"expressions[0]") {
		t.Error(a.body)
	}
	g.want(http.StatusCreated, "POST", filtersPath,
		`{"metadata":{"name":"f"},"action":"allow","expressions":["event.check.status == 2"]}`)
	g.want(http.StatusBadRequest, "PATCH", filtersPath+"/f", `{"expressions":["a b"]}`)
	g.want(http.StatusBadRequest, "POST", checksPath, `{"metadata":{"name":"c"},"command":7,"interval":"5"}`)
}

// What the contract takes and drops, and names of what is not there, are warnings of the answer.
func TestWarnings(t *testing.T) {
	g := reviewed(t)
	check := `{"metadata":{"name":"c"},"command":"x","interval":5,"subscriptions":["a"],"handlrs":["pager"],` +
		`"handlers":["pager"]}`
	a := g.want(http.StatusCreated, "POST", checksPath, check)
	if got := strings.Join(sensu.Warnings(a.header),
		"; "); got != `unknown key "handlrs"; did you mean "handlers"?; handlers[0]: handler "pager" does not exist` {
		t.Error(got)
	}
	g.want(http.StatusCreated, "POST", "/api/core/v2/namespaces/default/handlers",
		`{"metadata":{"name":"pager"},"type":"pipe","command":"cat"}`)
	a = g.want(http.StatusCreated, "PUT", checksPath+"/c", strings.Replace(check, `"handlrs":["pager"],`, "", 1))
	if got := sensu.Warnings(a.header); len(got) != 0 {
		t.Error(got)
	}
	// An author's text in a warning stays in its header.
	a = g.want(http.StatusCreated, "PUT", checksPath+"/c", strings.Replace(check, "handlrs", `a\r\nSet-Cookie: b`, 1))
	if a.header.Get("Set-Cookie") != "" || !strings.Contains(strings.Join(sensu.Warnings(a.header), ""), "Set-Cookie: b") {
		t.Error(a.header)
	}
}

// A dry run says all that a write would say, and writes nothing; strict refuses unknown keys.
func TestDryRun(t *testing.T) {
	g := reviewed(t)
	check := `{"metadata":{"name":"c","namespace":"default"},"command":"x","interval":5,"subscriptions":["a"],"tiemout":5}`
	g.want(http.StatusCreated, "PUT", checksPath+"/c?dry_run=true", check)
	g.want(http.StatusNotFound, "GET", checksPath+"/c", "")
	if a := g.want(http.StatusBadRequest, "PUT", checksPath+"/c?strict=true", check); !strings.Contains(a.body,
		`did you mean \"timeout\"`) {
		t.Error(a.body)
	}
	reader := g.user("reader", `{"verbs":["get","list"],"resources":["checks"]}`)
	if a := g.send("PUT", checksPath+"/c?dry_run=true", bearer(reader.Access), check); a.code != http.StatusForbidden {
		t.Errorf("a reader may try a write: %d %s", a.code, a.body)
	}
}

// TestServicesNeedRightsOnEvents: who writes a service component decides what its events say, and must be allowed to.
func TestServicesNeedRightsOnEvents(t *testing.T) {
	g := newRigOf(t, subscribers.Config{}, func(c *Config) {
		c.Documents = business.New(business.Config{Resources: c.Resources, Fields: selectors.Fields["events"],
			Labels: selectors.Labels})
	})
	const all = `{"verbs":["*"],"resources":["service-components"]}`
	const path = "/api/enterprise/bsm/v1/namespaces/default/service-components"
	body := func(service string) string {
		return `{"type":"ServiceComponent","api_version":"bsm/v1","metadata":{"name":"c"},"spec":{"services":["` + service +
			`"],"interval":10,"query":[{"type":"fieldSelector","value":"event.check.name == x"}],"rules":[{"template":` +
			`"aggregate","name":"webs"}]}}`
	}
	for i, c := range []struct {
		rules, service string
		want           int
	}{
		{all, "shop", 403},
		{all + `,{"verbs":["create"],"resources":["events"]}`, "shop", 403},
		{all + `,{"verbs":["create","update"],"resources":["events"],"resource_names":["shop/webs"]}`, "bank", 403},
		{all + `,{"verbs":["create","update"],"resources":["events"],"resource_names":["shop/webs"]}`, "shop", 201},
	} {
		auth := bearer(g.user(fmt.Sprint("user", i), c.rules).Access)
		for method, at := range map[string]string{"POST": path, "PUT": path + "/c"} {
			if a := g.send(method, at+"?dry_run=true", auth, body(c.service)); a.code != c.want ||
				c.want == 403 && !strings.Contains(a.body, "event "+c.service+"/webs") {
				t.Errorf("%s with %s: %v, not %d", method, c.rules, a, c.want)
			}
		}
	}
}
