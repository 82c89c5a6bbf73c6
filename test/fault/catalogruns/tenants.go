package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/client/sensu"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// TenantsReport tells what hostile programs did to a server.
type TenantsReport struct {
	RSSBefore, RSSMost int64 // of the server, in bytes
	ChildMost          int64 // the most that one of its children had
	Programs           int   // that ran, or began to
	Beside             int   // writes to the catalog meanwhile
}

// hostilePrograms keep a built-in function busy, or have it grow, without a step between; and the plain ones.
var hostilePrograms = map[string]string{
	"join":    "var a = []; for (var i = 0; i < 1000; i++) a.push('x'); a.join('x'.repeat(1000000)).length",
	"replace": "'x'.repeat(1000000).replace(/x/g, 'y'.repeat(100000)).length",
	"stringify": "var o = {a: 'x'.repeat(1000000)}; for (var i = 0; i < 30; i++) o = {a: o, b: o}; " +
		"JSON.stringify(o).length",
	"regexp": `/^(?=(a+)+$)(b|c)+\1/.test('a'.repeat(50)) || /(x+x+)+y\1/.test('x'.repeat(100000))`,
	"array":  "var a = []; for (;;) a.push('x'.repeat(1000000) + a.length)",
	"deep":   "var o = 'x'; for (var i = 0; i < 1000000; i++) o = [o]; JSON.stringify(o)",
	"loop":   "while (true) {}",
}

// RunTenants is B13: filters and a mutator that somebody wrote to harm get events for so long. The server's memory
// stays what it was, each child has its bound, a good filter's handler gets its events, and the catalog goes on.
func RunTenants(ctx context.Context, l *faultrun.Lab, lasts time.Duration) (report TenantsReport, err error) {
	c, err := l.Open(ctx, harness.Config{Servers: 1, Monitor: true, HCL: []string{faultrun.MonitorHCL}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	s := c.Servers[0]
	cl, err := sensu.New(sensu.Config{Address: s.Monitor, User: "admin", Password: "P@ssw0rd!", Timeout: 20 * time.Second})
	if err != nil {
		return report, err
	}
	defer cl.Close()
	t := &tenants{Cluster: c, client: cl, report: &report,
		file: filepath.Join(l.Dir, fmt.Sprint("tenants-", time.Now().UnixNano()))}
	defer os.Remove(t.file)
	if err := t.prepare(ctx); err != nil {
		return report, err
	}
	report.RSSBefore = s.RSS()
	for n, end := 0, time.Now().Add(lasts); time.Now().Before(end); n++ {
		if err := t.round(ctx, n); err != nil {
			return report, err
		}
	}
	if err := spawn.Until(ctx, time.Minute, "a good filter's handler to get an event", func() error {
		if b, err := os.ReadFile(t.file); err != nil || len(b) == 0 {
			return fmt.Errorf("%s is empty: %v", t.file, err)
		}
		return nil
	}); err != nil {
		return report, err
	}
	if grown := report.RSSMost - report.RSSBefore; report.RSSBefore > 0 && grown > 64<<20 {
		err = fmt.Errorf("the server grew by %d MiB", grown>>20)
	}
	if report.ChildMost > 256<<20 {
		err = errors.Join(err, fmt.Errorf("a child had %d MiB", report.ChildMost>>20))
	}
	return report, errors.Join(err, c.Damage())
}

type tenants struct {
	*faultrun.Cluster
	client *sensu.Client
	report *TenantsReport
	file   string
	names  []string
}

func (t *tenants) put(ctx context.Context, typ, name, fields string) error {
	_, _, err := t.client.Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/"+typ+"/"+name, nil,
		fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"default"},%s}`, name, fields))
	return err
}

// prepare makes a filter and a handler of each program, a mutator, and a good pair that writes to a file.
func (t *tenants) prepare(ctx context.Context) error {
	if err := spawn.Until(ctx, time.Minute, "the administrator to be known", func() error {
		_, _, err := t.client.Do(ctx, http.MethodGet, "/api/core/v2/namespaces/default/checks", nil, nil)
		return err
	}); err != nil {
		return err
	}
	programs := map[string]string{"good": "var s = event.check.status; s == 2"}
	for name, source := range hostilePrograms {
		programs[name] = source
	}
	for name, source := range programs {
		command := "cat > /dev/null"
		if name == "good" {
			command = "cat >> " + t.file
		}
		if err := errors.Join(t.put(ctx, "filters", name, fmt.Sprintf(`"action":"allow","expressions":[%q]`, source)),
			t.put(ctx, "handlers", name, fmt.Sprintf(`"type":"pipe","command":%q,"filters":[%q],"timeout":5`, command,
				name))); err != nil {
			return err
		}
		t.names = append(t.names, name)
	}
	slices.Sort(t.names)
	if err := errors.Join(t.put(ctx, "mutators", "mutator", fmt.Sprintf(`"type":"javascript","eval":%q,"timeout":1`,
		hostilePrograms["array"])),
		t.put(ctx, "handlers", "mutated",
			`"type":"pipe","command":"cat > /dev/null","mutator":"mutator","timeout":5`)); err != nil {
		return err
	}
	t.names = append(t.names, "mutated")
	return nil
}

// round sends an event to every handler, and writes to the catalog while their programs run.
func (t *tenants) round(ctx context.Context, n int) error {
	for i, name := range t.names {
		check := fmt.Sprintf("c%d", i)
		if _, _, err := t.client.Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/events/host/"+check, nil,
			fmt.Appendf(nil,
				`{"entity":{"metadata":{"name":"host","namespace":"default"},"entity_class":"proxy"},"check":{"metadata":{`+
					`"name":%q,"namespace":"default"},"status":2,"interval":60,"handlers":[%q],"output":"%d"}}`, check, name,
				n)); err != nil {
			return err
		}
		t.report.Programs++
		for range 5 {
			if r := t.Admin.At(t.Servers[0].HTTP).Do(ctx, "PUT", "/v1/kv/beside", []byte("x")); r.Status != http.StatusOK {
				return fmt.Errorf("the catalog beside: %s", r)
			}
			t.report.Beside++
			t.look()
		}
	}
	return nil
}

// look notes how much memory the server and its children have.
func (t *tenants) look() {
	t.report.RSSMost = max(t.report.RSSMost, t.Servers[0].RSS())
	// the pattern is well-formed
	lists, _ := filepath.Glob(filepath.Join("/proc", fmt.Sprint(t.Servers[0].Control.PID()), "task", "*", "children"))
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread that has ended
		for pid := range strings.FieldsSeq(string(b)) {
			t.report.ChildMost = max(t.report.ChildMost, spawn.MemoryOf(pid, "VmRSS"))
		}
	}
}
