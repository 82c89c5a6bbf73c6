package nomadapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/ws"
)

const (
	nodeID   = "11111111-1111-4111-8111-111111111111"
	allocID  = "22222222-2222-4222-8222-222222222222"
	evalID   = "33333333-3333-4333-8333-333333333333"
	deployID = "44444444-4444-4444-8444-444444444444"
	policyID = "a4ad6ead-149a-b974-8703-edb3342c3822"
	noID     = "99999999-9999-4999-8999-999999999999"
)

func id(text string) jobs.ID {
	parsed, ok := nomadrows.ParseID(text)
	if !ok {
		panic(text)
	}
	return parsed
}

func aJob(name string, count int) *jobs.Job {
	return &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: name}, Name: name, Type: jobs.Service, Priority: 50,
		Datacenters: []string{"*"}, NodePool: "default",
		Groups: []*jobs.TaskGroup{{Name: "g", Count: count, Update: &jobs.UpdatePolicy{MaxParallel: 1},
			Tasks: []*jobs.Task{{Name: "main", Driver: "raw_exec", Config: `{"command":"/bin/true"}`,
				Resources: jobs.Resources{CPU: 100, MemoryMB: 64}}}}}}
}

// filled is a plane with one of each.
func filled() *plane {
	p := newPlane()
	p.edit(func(e *state.Edit) {
		e.PutNode(&jobs.Node{ID: id(nodeID), Name: "n1", Datacenter: "dc1", Attributes: map[string]string{"os.name": "linux"},
			Drivers:  map[string]jobs.Driver{"raw_exec": {Detected: true, Healthy: true}},
			Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 1000, MemoryMB: 1000, DiskMB: 10000}},
			Duty:     jobs.Duty{Status: jobs.NodeReady}})
		web := aJob("web", 1)
		web.Groups[0].Parts = map[string]string{"Scaling": `{"Min":1,"Max":4,"Policy":{"cooldown":"1m"}}`}
		j := e.PutJob(web)
		e.PutJob(aJob("a/b", 1))
		e.PutAllocation(&jobs.Allocation{ID: id(allocID), NodeID: id(nodeID), EvalID: id(evalID), Job: j, Group: "g",
			Grant: &jobs.Grant{Vector: jobs.Vector{CPU: 100, MemoryMB: 64}}, Desired: jobs.Desired{Status: jobs.Run},
			Client: jobs.Client{Status: jobs.ClientRunning}, Rollout: jobs.Rollout{Deployment: id(deployID)}})
		e.PutEvaluation(&jobs.Evaluation{ID: id(evalID), JobKey: j.JobKey, Type: jobs.Service, Status: jobs.EvalComplete,
			Trigger: jobs.TriggerJobRegister, Priority: 50, Outcome: jobs.Outcome{Queued: map[string]int{"g": 0}}})
		e.PutDeployment(&jobs.Deployment{ID: id(deployID), JobKey: j.JobKey, JobCreateIndex: j.CreateIndex,
			Status: jobs.DeploySuccessful, Groups: map[string]*jobs.DeploymentGroup{"g": {DesiredTotal: 1}}})
	}, nomadrows.Jobs, nomadrows.Nodes, nomadrows.Allocations, nomadrows.Evaluations, nomadrows.Deployments)
	p.view.variables = []*nomadrows.Variable{{VariableMeta: nomadrows.VariableMeta{Namespace: "default", Path: "app/db",
		CreateIndex: 3, ModifyIndex: 4}, Items: map[string]string{"user": "u"}}}
	p.view.services = []*nomadrows.Service{{ID: "s1", ServiceName: "api", Namespace: "default", JobID: "web",
		AllocID: allocID, Tags: []string{"blue"}}, {ID: "s2", ServiceName: "api", Namespace: "default", JobID: "web"}}
	return p
}

// TestDropEvaluations: while nothing is evaluated, evaluations go by their ids or by a filter.
func TestDropEvaluations(t *testing.T) {
	for body, want := range map[string]string{
		`{"EvalIDs":["` + evalID + `"]}`:                 `200 {"Count":1}`,
		`{"Filter":"Status == \"complete\""}`:            `200 {"Count":1}`,
		`{"Filter":"Status == \"blocked\""}`:             `200 {"Count":0}`,
		`{"Filter":"Status =="}`:                         "400 failed to read filter expression",
		`{"EvalIDs":["` + noID + `"]}`:                   "500 eval not found",
		`{"EvalIDs":["1111"]}`:                           "400 UUID must be 36 characters",
		`{"EvalIDs":["` + evalID + `"],"Filter":"true"}`: "400 by both ID and filter",
	} {
		p := filled()
		p.view.setting.PauseEvalBroker = true
		w := call(p.api(), "DELETE", "/v1/evaluations", body)
		status, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(w.Code) != status || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

func call(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, path, nil)
	} else {
		r = httptest.NewRequest(method, path, strings.NewReader(body))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const goodJob = `{"ID":"new","Type":"service","TaskGroups":[{"Name":"g","Tasks":[{"Name":"main","Driver":"raw_exec",` +
	`"Config":{"command":"/bin/true"},"Resources":{"CPU":100,"MemoryMB":64}}]}]}`

// TestRows: status and body of each row, as section 8 of the contract records them.
func TestRows(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/v1/jobs", "", 200, `"ID":"web"`},
		{"GET", "/v1/jobs?prefix=w", "", 200, `"JobSummary":{"JobID":"web"`},
		{"GET", "/v1/jobs?namespace=other", "", 200, `[]`},
		{"GET", "/v1/jobs?namespace=*", "", 200, `"Status":"running"`},
		{"GET", "/v1/jobs?filter=" + "Type+%3D%3D+%22batch%22", "", 200, `[]`},
		{"GET", "/v1/jobs?filter=%28", "", 400, "failed to read filter expression"},
		{"HEAD", "/v1/jobs", "", 405, "Invalid method"},
		{"OPTIONS", "/v1/jobs", "", 405, "Invalid method"},
		{"GET", "/v1/nothing", "", 404, ""},
		{"GET", "/", "", 307, ""},
		{"GET", "/v1/job/web", "", 200, `"Status":"running"`},
		{"GET", "/v1/job/a%2Fb", "", 200, `"ID":"a/b"`},
		{"GET", "/v1/job/a/b", "", 200, `"ID":"a/b"`},
		{"GET", "/v1/job/a/b/summary", "", 200, `"JobID":"a/b"`},
		{"GET", "/v1/job/none", "", 404, "job not found"},
		{"GET", "/v1/job/none/versions", "", 404, "job not found"},
		{"GET", "/v1/job/none/summary", "", 404, "job not found"},
		{"GET", "/v1/job/none/scale", "", 404, "job not found"},
		{"GET", "/v1/job/none/services", "", 404, "job not found"},
		{"GET", "/v1/job/none/allocations", "", 200, "[]"},
		{"GET", "/v1/job/none/evaluations", "", 200, "[]"},
		{"GET", "/v1/job/none/deployments", "", 200, "[]"},
		{"GET", "/v1/job/none/deployment", "", 200, "null"},
		{"GET", "/v1/job/web/allocations", "", 200, `"TaskStates":{"main":{"State":"running"`},
		{"GET", "/v1/job/web/allocations?task_states=false", "", 200, `"ClientStatus":"running","Depl`},
		{"GET", "/v1/job/web/evaluations", "", 200, `"TriggeredBy":"job-register"`},
		{"GET", "/v1/job/web/deployment", "", 200, deployID},
		{"GET", "/v1/job/web/versions?diffs=true", "", 200, `"Versions":[{`},
		{"GET", "/v1/job/web/services", "", 200, `"ServiceName":"api"`},
		{"GET", "/v1/job/web/submission", "", 404, "job source not found"},
		{"GET", "/v1/job/web/why", "", 200, "Nothing of the job is pending."},
		{"GET", "/v1/job/a%2Fb/why", "", 200, `1 nodes have room`},
		{"PUT", "/v1/jobs", "", 400, "the body is empty"},
		{"PUT", "/v1/jobs", "{}", 400, "Job must be specified"},
		{"PUT", "/v1/jobs", `{"Job":{}}`, 400, "Job ID hasn't been provided"},
		{"PUT", "/v1/jobs", `{"Job":{"ID":7}}`, 400, "Job.ID: want text, not number"},
		{"PUT", "/v1/jobs", `{"Job":{"ID":"x"}}`, 500, "error occurred:\n\t* "},
		{"PUT", "/v1/jobs", `{"Job":` + goodJob + `}`, 200, `"EvalID":"0`},
		{"POST", "/v1/jobs", `{"Job":` + goodJob + `}`, 200, `"KnownLeader":false,"NextToken":""`},
		{"PUT", "/v1/jobs?namespace=gone", `{"Job":` + goodJob + `}`, 500, "nonexistent namespace"},
		{"PUT", "/v1/jobs?region=mars", `{"Job":` + goodJob + `}`, 500, "No path to region"},
		{"PUT", "/v1/job/other", `{"Job":` + goodJob + `}`, 400, "Job ID does not match name"},
		{"PUT", "/v1/validate/job", `{"Job":{"ID":"x"}}`, 200, `"ValidationErrors":["`},
		{"PUT", "/v1/job/new/plan", `{"Diff":true,"Job":` + goodJob + `}`, 200,
			`"DesiredTGUpdates":{"g":{"Ignore":0,"Place":1`},
		{"POST", "/v1/jobs/parse", `{"JobHCL":"job \"x\" {\n group \"g\" {\n task \"t\" {\n driver = \"mock\"\n}\n}\n}"}`,
			200, `"Driver":"mock"`},
		{"POST", "/v1/jobs/parse", `{"JobHCL":"job {"}`, 400, "input.hcl:1"},
		{"PUT", "/v1/job/web/scale", `{"Count":3,"Target":{"Group":"g"}}`, 200, `"JobModifyIndex":2`},
		{"PUT", "/v1/job/web/scale", `{"Count":3,"Target":{"Group":"no"}}`, 400, "does not exist in job"},
		{"PUT", "/v1/job/none/scale", `{"Count":3,"Target":{"Group":"g"}}`, 404, "not found"},
		{"PUT", "/v1/job/web/scale", `{"Error":true,"Message":"no","Target":{"Group":"g"}}`, 200, `"Index":77`},
		{"GET", "/v1/job/web/scale", "", 200, `"Events":[{"Count":2,"PreviousCount":1,"Error":false,"Message":"busy"`},
		{"PUT", "/v1/job/none/evaluate", `{}`, 500, "job not found"},
		{"PUT", "/v1/job/none/revert", `{"JobVersion":1}`, 500, "not found"},
		{"PUT", "/v1/job/web/revert", `{"JobVersion":0}`, 500, "can't revert to current version"},
		{"PUT", "/v1/job/web/dispatch", `{}`, 500, "not parameterized"},
		{"PUT", "/v1/job/web/stable", `{"JobVersion":0,"Stable":true}`, 200, `{"Index":77}`},
		{"PUT", "/v1/job/a%2Fb/periodic/force", "", 200, `"EvalCreateIndex":77`},
		{"DELETE", "/v1/job/web?purge=true", "", 200, `"VolumeEvalID":""`},
		{"GET", "/v1/nodes?resources=true", "", 200, `"MemoryMB":1000`},
		{"GET", "/v1/nodes?prefix=1111", "", 200, `"Address":"127.0.0.1"`},
		{"GET", "/v1/nodes?prefix=111", "", 500, "even length"},
		{"GET", "/v1/nodes?prefix=zz", "", 500, "Invalid UUID"},
		{"GET", "/v1/node/" + nodeID, "", 200, `"HTTPAddr":"127.0.0.1:4646"`},
		{"GET", "/v1/node/" + noID, "", 404, "node not found"},
		{"GET", "/v1/node/1111", "", 500, "UUID must be 36 characters"},
		{"GET", "/v1/node/" + nodeID + "/allocations", "", 200, `"JobID":"web"`},
		{"PUT", "/v1/node/" + noID + "/drain", `{"DrainSpec":{"Deadline":1}}`, 500, "node not found"},
		{"PUT", "/v1/node/" + nodeID + "/drain", `{"DrainSpec":{"Deadline":1}}`, 200, `"NodeModifyIndex":77`},
		{"PUT", "/v1/node/" + nodeID + "/eligibility", `{"Eligibility":"maybe"}`, 400, "invalid scheduling eligibility"},
		{"PUT", "/v1/node/" + nodeID + "/eligibility", `{"Eligibility":"eligible"}`, 200, `"EvalIDs":[]`},
		{"GET", "/v1/node/pools", "", 200, `"Name":"all"`},
		{"GET", "/v1/node/pool/none", "", 404, "node pool not found"},
		{"GET", "/v1/node/pool/default/nodes", "", 200, nodeID},
		{"PUT", "/v1/node/pools", `{"Name":"default"}`, 500, "not allowed"},
		{"PUT", "/v1/node/pools", `{"Name":"gpu"}`, 200, ""},
		{"GET", "/v1/allocations", "", 200, allocID},
		{"GET", "/v1/allocation/" + allocID, "", 200, `"Job":{"Region"`},
		{"GET", "/v1/allocation/" + noID, "", 404, "alloc not found"},
		{"PUT", "/v1/allocation/" + noID + "/stop", "", 404, "alloc not found"},
		{"PUT", "/v1/allocation/" + allocID + "/stop", "", 200, `"Index":77`},
		{"GET", "/v1/allocation/" + allocID + "/services", "", 200, `"ID":"s1"`},
		{"PUT", "/v1/client/allocation/" + allocID + "/signal", `{}`, 200, `{"Index":0}`},
		{"PUT", "/v1/client/allocation/" + allocID + "/restart", `{"TaskName":"main"}`, 200, `{"Index":0}`},
		{"GET", "/v1/client/fs/ls/" + allocID + "?path=/missing", "", 404, "no such file"},
		{"GET", "/v1/client/fs/cat/" + allocID + "?path=/missing", "", 200, "no such file"},
		{"GET", "/v1/client/fs/logs/" + allocID, "", 400, "must provide task name"},
		{"GET", "/v1/client/fs/logs/" + allocID + "?task=no&type=stdout", "", 404, "task"},
		{"GET", "/v1/client/fs/logs/" + noID + "?task=main&type=stdout", "", 404, "Unknown allocation"},
		{"GET", "/v1/client/stats", "", 400, "node_id"},
		{"GET", "/v1/evaluations?status=complete&job=web", "", 200, evalID},
		{"GET", "/v1/evaluations/count", "", 200, `{"Count":1}`},
		{"GET", "/v1/evaluation/" + evalID + "?related=true", "", 200, `"RelatedEvals":null`},
		{"GET", "/v1/evaluation/" + noID, "", 404, "eval not found"},
		{"GET", "/v1/evaluation/" + evalID + "/allocations", "", 200, allocID},
		{"GET", "/v1/deployments", "", 200, deployID},
		{"GET", "/v1/deployment/" + deployID, "", 200, `"Status":"successful"`},
		{"GET", "/v1/deployment/" + noID, "", 404, "deployment not found"},
		{"GET", "/v1/deployment/allocations/" + deployID, "", 200, allocID},
		{"PUT", "/v1/deployment/promote/" + deployID, `{"All":true}`, 500, "can't promote terminal deployment"},
		{"PUT", "/v1/deployment/fail/" + noID, "", 500, "deployment not found"},
		{"PUT", "/v1/deployment/unblock/" + deployID, "", 200, `"EvalID":""`},
		{"GET", "/v1/services", "", 200, `"Tags":["blue"]`},
		{"GET", "/v1/service/api?choose=1|x", "", 200, `[{"ID":"s`},
		{"GET", "/v1/service/api?choose=x", "", 400, "choose"},
		{"OPTIONS", "/v1/vars", "", 405, "Invalid method"},
		{"POST", "/v1/search", `{"Prefix":"app","Context":"vars"}`, 200, `"vars":["app/db"]`},
		{"GET", "/v1/namespaces", "", 200, `"Name":"other"`},
		{"GET", "/v1/namespace/none", "", 404, "Namespace not found"},
		{"PUT", "/v1/namespace", `{"Name":"a b"}`, 500, "invalid name"},
		{"DELETE", "/v1/namespace/default", "", 500, "default"},
		{"POST", "/v1/search", `{"Prefix":"we","Context":"jobs"}`, 200, `"Matches":{"jobs":["web"]}`},
		{"POST", "/v1/search", `{"Prefix":"we","Context":"bad"}`, 500, "context must be"},
		{"POST", "/v1/search/fuzzy", `{"Text":"mai","Context":"all"}`, 200, `"tasks":[{"ID":"main"`},
		{"GET", "/v1/operator/scheduler/configuration", "", 200, `"SchedulerAlgorithm":"binpack"`},
		{"PUT", "/v1/operator/scheduler/configuration?cas=3", `{"SchedulerAlgorithm":"spread"}`, 200, `"Updated":true`},
		{"PUT", "/v1/operator/scheduler/configuration", `{"SchedulerAlgorithm":"x"}`, 400, "invalid scheduler algorithm"},
		{"GET", "/v1/agent/members", "", 200, `"Name":"a.global"`},
		{"GET", "/v1/agent/self", "", 200, `"member":{"Name":"a.global"`},
		{"GET", "/v1/agent/health", "", 200, `"server":{"ok":true`},
		{"GET", "/v1/status/leader", "", 200, `"127.0.0.1:4647"`},
		{"GET", "/v1/regions", "", 200, `["global"]`},
		{"PUT", "/v1/system/gc", "", 200, ""},
		{"GET", "/v1/acl/tokens", "", 400, "ACL support disabled"},
		{"GET", "/v1/operator/license", "", 204, ""},
		{"GET", "/.well-known/jwks.json", "", 404, ""},
	} {
		w := call(filled().api(), c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: %d %.300q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.has)
		}
	}
}

// TestVariables: status and body of the rows of variables.
func TestVariables(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/v1/vars", "", 200, `"Path":"app/db","CreateIndex":3,"ModifyIndex":4`},
		{"GET", "/v1/vars?prefix=other", "", 200, "[]"},
		{"GET", "/v1/vars?namespace=*&per_page=1", "", 200, `"Path":"app/db"`},
		{"GET", "/v1/vars?filter=Path+%3D%3D+%22none%22", "", 200, "[]"},
		{"GET", "/v1/var/app/db", "", 200, `"Items":{"user":"u"}`},
		{"GET", "/v1/var/app%2Fdb", "", 200, `"Items":{"user":"u"}`},
		{"GET", "/v1/var/none", "", 404, "variable not found"},
		{"PUT", "/v1/var/new", `{"Items":{"a":"b"}}`, 200, `"Path":"new"`},
		{"PUT", "/v1/var/new?cas=0", `{"Items":{"a":"b"}}`, 200, `"Items":{"a":"b"}`},
		{"PUT", "/v1/var/new?cas=7", `{"Items":{"a":"b"}}`, 409, `"Path":"new","CreateIndex":0`},
		{"PUT", "/v1/var/app/db?cas=0", `{"Items":{"a":"b"}}`, 409,
			`"ModifyIndex":4,"CreateTime":0,"ModifyTime":0,"Items":{"user"`},
		{"PUT", "/v1/var/app/db?cas=x", `{"Items":{"a":"b"}}`, 400, "cas"},
		{"PUT", "/v1/var/new", `{"Path":"old","Items":{"a":"b"}}`, 400, "does not match"},
		{"PUT", "/v1/var/new", `{}`, 400, "missing required Items"},
		{"PUT", "/v1/var/new", `{"Items":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`, 400, "limited to 64KiB"},
		{"PUT", "/v1/var/a.b", `{"Items":{"a":"b"}}`, 400, "invalid path"},
		{"PUT", "/v1/var/a//b", `{"Items":{"a":"b"}}`, 400, "is empty"},
		{"PUT", "/v1/var/nomad", `{"Items":{"a":"b"}}`, 400, "reserved"},
		{"PUT", "/v1/var/nomad/other", `{"Items":{"a":"b"}}`, 400, "only paths at"},
		{"PUT", "/v1/var/nomad/job-templates", `{"Items":{"a":"b"}}`, 400, "reserved"},
		{"PUT", "/v1/var/nomad/jobs/web", `{"Items":{"a":"b"}}`, 200, ""},
		{"DELETE", "/v1/var/app/db", "", 204, ""},
		{"DELETE", "/v1/var/app/db?cas=9", "", 409, `"user":"u"`},
	} {
		w := call(filled().api(), c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: %d %.300q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.has)
		}
	}
}

// TestHead: reads have the three headers that clients cannot do without, writes one of them (NA-1).
func TestHead(t *testing.T) {
	h := filled().api()
	read := call(h, "GET", "/v1/jobs", "").Header()
	for _, name := range []string{"X-Nomad-Index", "X-Nomad-Knownleader", "X-Nomad-Lastcontact"} {
		if len(read[name]) != 1 {
			t.Errorf("a read has %s %q", name, read[name])
		}
	}
	write := call(h, "PUT", "/v1/jobs", `{"Job":`+goodJob+`}`).Header()
	if write.Get("X-Nomad-Index") == "" || write.Get("X-Nomad-Knownleader") != "" {
		t.Errorf("a write has %v", write)
	}
	if index := call(newPlane().api(), "GET", "/v1/jobs", "").Header().Get("X-Nomad-Index"); index != "0" {
		t.Errorf("before the first write the index is %q", index)
	}
	if missing := call(h, "GET", "/v1/job/none", "").Header().Get("X-Nomad-Index"); missing == "" {
		t.Error("404 has no index: who waits for a job cannot block")
	}
}

// TestPages: pages together are the list, whichever way it goes.
func TestPages(t *testing.T) {
	p := newPlane()
	for i := range 25 {
		p.edit(func(e *state.Edit) {
			var x jobs.ID
			x[0], x[15] = byte(200-i), 1
			e.PutEvaluation(&jobs.Evaluation{ID: x, JobKey: jobs.JobKey{Namespace: "default", ID: "j"}})
		}, nomadrows.Evaluations)
	}
	h := p.api()
	for _, reverse := range []bool{false, true} {
		var got []string
		next := ""
		for {
			w := call(h, "GET", fmt.Sprintf("/v1/evaluations?per_page=4&reverse=%t&next_token=%s", reverse, next), "")
			var page []struct{ CreateIndex uint64 }
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page) > 4 {
				t.Fatal(err, len(page))
			}
			for _, e := range page {
				got = append(got, fmt.Sprint(e.CreateIndex))
			}
			if next = w.Header().Get("X-Nomad-Nexttoken"); next == "" {
				break
			}
		}
		var want []string
		for i := range 25 {
			n := i + 1
			if reverse {
				n = 25 - i
			}
			want = append(want, fmt.Sprint(n))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("reverse %t: %v", reverse, got)
		}
	}
}

// TestBlocking: a query waits for what it reads, and for nothing else (NA-2).
func TestBlocking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := filled()
		h := p.api()
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() { answered <- call(h, "GET", "/v1/job/web?index=1&wait=60s", "") }()
		synctest.Wait()
		p.edit(func(e *state.Edit) { e.PutJob(aJob("unrelated", 1)) }, nomadrows.Jobs)
		synctest.Wait()
		select {
		case w := <-answered:
			t.Fatalf("another job's change answered: %d", w.Code)
		default:
		}
		p.edit(func(e *state.Edit) { e.PutJob(aJob("web", 2)) }, nomadrows.Jobs)
		if w := <-answered; w.Header().Get("X-Nomad-Index") != "3" || !strings.Contains(w.Body.String(), `"Count":2`) {
			t.Errorf("index %s: %s", w.Header().Get("X-Nomad-Index"), w.Body)
		}
		began := time.Now()
		call(h, "GET", "/v1/job/web?index=99&wait=10s", "")
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("a wait of 10 s took %s", took)
		}
	})
}

// TestEvents: the first line is {} at once, what is kept comes next, and silence is told every 30 s (NA-23). A snapshot
// that replaces everything ends the stream.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := filled()
		p.events = []*nomadrows.Events{{Index: 5, Events: []*nomadrows.Event{
			{Topic: "Job", Type: "JobRegistered", Key: "web", Namespace: "default", Payload: json.RawMessage(`{}`)},
			{Topic: "Node", Type: "NodeDrain", Key: nodeID, Payload: json.RawMessage(`{}`)}}}}
		p.replaced = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/event/stream?topic=Job:web", nil)
		in, out := io.Pipe()
		go func() {
			p.api().ServeHTTP(&pipeWriter{ResponseRecorder: httptest.NewRecorder(), to: out}, r)
			_ = out.Close()
		}()
		lines := bufio.NewScanner(in)
		var got []string
		for lines.Scan() && len(got) < 3 {
			if got = append(got, lines.Text()); len(got) == 3 {
				break
			}
		}
		close(p.replaced) // the stream ends by itself, after all that came before
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("after a restore: %q %v", rest, err)
		}
		if got[0] != "{}" || !strings.Contains(got[1], `"JobRegistered"`) || strings.Contains(got[1], "NodeDrain") ||
			got[2] != "{}" {
			t.Errorf("lines %q", got)
		}
	})
}

// TestVariablesSealed: what nothing opens is 503 with the next step, lists work, and no answer is kept for later.
func TestVariablesSealed(t *testing.T) {
	p := filled()
	h := p.api()
	if w := call(h, "GET", "/v1/var/app/db", ""); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	p.sealed = true
	if w := call(h, "GET", "/v1/var/app/db", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "unseal it") {
		t.Error(w.Code, w.Body)
	}
	if w := call(h, "GET", "/v1/vars", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "app/db") {
		t.Error(w.Code, w.Body)
	}
	if w := call(h, "PUT", "/v1/var/app/db?cas=1", `{"Items":{"a":"b"}}`); w.Code != 409 ||
		!strings.Contains(w.Body.String(), `"ModifyIndex":4`) {
		t.Error(w.Code, w.Body)
	}
}

// pipeWriter hands an answer on as it is written.
type pipeWriter struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (w *pipeWriter) Write(b []byte) (int, error) { return w.to.Write(b) }
func (w *pipeWriter) Flush()                      {}

// TestLogs: frames pass as they are, or plain.
func TestLogs(t *testing.T) {
	p := filled()
	p.frames = `{"Data":"aGk=","File":"main.stdout.0"}{}{"Data":"IQ=="}`
	path := "/v1/client/fs/logs/" + allocID + "?task=main&type=stdout"
	if w := call(p.api(), "GET", path+"&plain=true", ""); w.Body.String() != "hi!" {
		t.Errorf("plain: %q", w.Body)
	}
	if w := call(p.api(), "GET", path, ""); w.Body.String() != `{"Data":"aGk=","File":"main.stdout.0"}{}{"Data":"IQ=="}` {
		t.Errorf("frames: %q", w.Body)
	}
}

// TestExec: what the node says reaches the client's WebSocket, up to the exit code.
func TestExec(t *testing.T) {
	p := filled()
	p.frames = `{"stdout":{"data":"aGk="}}{"exited":true,"result":{"exit_code":3}}`
	server := httptest.NewServer(p.api())
	defer server.Close()
	url := "ws" + strings.TrimPrefix(server.URL, "http") + "/v1/client/allocation/" + allocID +
		`/exec?task=main&command=%5B%22sh%22%5D`
	c, _, err := ws.Dial(t.Context(), url, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	for {
		text, err := c.Read(nil)
		if err != nil {
			break
		}
		got = append(got, string(text))
	}
	if strings.Join(got, "") != `{"stdout":{"data":"aGk="}}{"exited":true,"result":{"exit_code":3}}` {
		t.Errorf("frames %q", got)
	}
}

// rights allow reading to the token "reader", and know no other.
type rights struct{}

func (rights) Allows(token, namespace string, what nomadrows.Capability) (bool, error) {
	return token == "reader" && namespace == "default" && strings.HasPrefix(string(what), "read"), nil
}

// TestRights: each row asks; lists over all namespaces show what the token may see.
func TestRights(t *testing.T) {
	p := filled()
	h := New(Config{Needs: nomadrows.Needs{Views: p, Jobs: p, Starter: p, Nodes: p, Deployments: p, Settings: p,
		Clients: p, Cluster: p, Variables: p, Snapshots: p, Rights: rights{}}})
	for _, row := range Rows() {
		method, _, _ := strings.Cut(row.Methods, " ")
		path := strings.NewReplacer("*job", "new", ":alloc", allocID, ":eval", evalID, ":node", nodeID, ":deployment",
			deployID, ":pool", "default", ":name", "default", ":id", "s1", "*path", "app/db").Replace(row.Path)
		if path == "/v1/agent/health" || strings.Contains(path, "/status/") || !strings.HasPrefix(path, "/v1/") ||
			strings.HasPrefix(path, "/v1/acl/") {
			continue // for anybody, or judged by the catalog
		}
		w := call(h, method, path, `{"Job":`+goodJob+`,"JobHCL":"x","Text":"zz","Items":{"a":"b"}}`)
		switch path {
		case "/v1/jobs/parse", "/v1/regions", "/v1/metrics", "/v1/operator/license", "/v1/namespaces",
			"/v1/search", "/v1/search/fuzzy": // nothing of the cluster, or filtered
		case "/v1/client/fs/ls/" + allocID, "/v1/client/fs/stat/" + allocID, "/v1/client/fs/cat/" + allocID,
			"/v1/client/fs/readat/" + allocID, "/v1/client/fs/stream/" + allocID, "/v1/client/fs/logs/" + allocID,
			"/v1/client/allocation/" + allocID + "/exec":
			if w.Code != http.StatusForbidden && w.Code != http.StatusBadRequest {
				t.Errorf("%s %s without a token: %d %.100q", method, path, w.Code, w.Body)
			}
		default:
			list := w.Code == 200 && (strings.Contains(w.Body.String(), "[]"))
			if w.Code != http.StatusForbidden && !list && w.Code != http.StatusInternalServerError {
				t.Errorf("%s %s without a token: %d %.100q", method, path, w.Code, w.Body)
			}
		}
		if !row.Right.Everywhere() {
			continue
		}
		if w = call(h, method, path+"?namespace=*", "{}"); w.Code != http.StatusForbidden {
			t.Errorf("%s %s of all namespaces without a token: %d %.100q", method, path, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest("GET", "/v1/job/web", nil)
	r.Header.Set("X-Nomad-Token", "reader")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("a reader reads: %d %s", w.Code, w.Body)
	}
}

// TestKeptAnswersKeepRights: answers are kept between requests, also with access control, and never shown to who may
// not see them, in whichever order tokens ask.
func TestKeptAnswersKeepRights(t *testing.T) {
	p := filled()
	h := New(Config{Needs: nomadrows.Needs{Views: p, Jobs: p, Starter: p, Nodes: p, Deployments: p, Settings: p,
		Clients: p, Cluster: p, Rights: rights{}}})
	ask := func(path, token string) string {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Nomad-Token", token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, strings.Contains(w.Body.String(), `"web"`))
	}
	for range 2 {
		for _, path := range []string{"/v1/allocations", "/v1/allocations?namespace=*", "/v1/job/web/allocations",
			"/v1/job/web", "/v1/allocation/" + allocID, "/v1/evaluation/" + evalID, "/v1/deployment/" + deployID,
			"/v1/node/" + nodeID + "/allocations"} {
			shown, hidden := "200 true", "403 false"
			if strings.Contains(path, "*") {
				hidden = "200 false"
			}
			if strings.Contains(path, "/v1/node/") { // the right to read nodes is another one
				shown = hidden
			}
			for _, token := range []string{"reader", "nobody", "reader", "nobody"} {
				want := shown
				if token == "nobody" {
					want = hidden
				}
				if got := ask(path, token); got != want {
					t.Errorf("%s with the token %s: %s, want %s", path, token, got, want)
				}
			}
		}
	}
	before := h.core.Bodies.Bytes()
	ask("/v1/job/web/allocations", "reader")
	if got := h.core.Bodies.Bytes(); got != before || before == 0 {
		t.Errorf("the cache has %d bytes, and %d after a repeated request", before, got)
	}
}
