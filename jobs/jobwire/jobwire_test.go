package jobwire

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// random fills v. Lists and maps have one or two elements, or are nil.
func random(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(3) > 0 && depth < 12 {
			v.Set(reflect.New(v.Type().Elem()))
			random(r, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			random(r, v.Field(i), depth+1)
		}
	case reflect.Slice:
		for range r.IntN(3) {
			e := reflect.New(v.Type().Elem()).Elem()
			random(r, e, depth+1)
			if e.Kind() != reflect.Pointer || !e.IsNil() {
				v.Set(reflect.Append(v, e))
			}
		}
	case reflect.Map:
		for range r.IntN(3) {
			e := reflect.New(v.Type().Elem()).Elem()
			random(r, e, depth+1)
			if e.Kind() == reflect.Pointer && e.IsNil() {
				continue
			}
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			name := "k" + strconv.Itoa(r.IntN(9))
			if request, ok := e.Interface().(*VolumeRequest); ok {
				request.Name = name // the key and the name are one
			}
			v.SetMapIndex(reflect.ValueOf(name), e)
		}
	case reflect.Interface:
		values := []any{"x", json.Number("12345678901234567890"), true, map[string]any{"a": []any{"b"}}}
		v.Set(reflect.ValueOf(values[r.IntN(len(values))]))
	case reflect.String:
		v.SetString([]string{"", "a", "service", "batch", "checks"}[r.IntN(5)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	default:
		if v.CanInt() {
			v.SetInt(int64(r.IntN(100)))
		} else {
			v.SetUint(uint64(r.IntN(100)))
		}
	}
}

// TestCoreKeepsAll: what clients send comes back, whatever of it the core knows.
func TestCoreKeepsAll(t *testing.T) {
	for seed := range uint64(400) {
		j := &Job{}
		random(rand.New(rand.NewPCG(seed, 1)), reflect.ValueOf(j).Elem(), 0)
		j.Canonicalize()
		core := ToJob(j)
		back := FromJob(core)
		// What is told by the groups, and by what became of the job.
		want := *j
		want.Reschedule, want.Migrate, want.Status, want.StatusDescription = nil, nil, new(string), new(string)
		if want.SubmitTime == nil {
			want.SubmitTime = new(int64)
		}
		if u := want.Update; u != nil {
			want.Update = &UpdateStrategy{Stagger: u.Stagger, MaxParallel: u.MaxParallel}
			zeros(reflect.ValueOf(want.Update).Elem())
		}
		if got, want := asJSON(t, back), asJSON(t, &want); got != want {
			t.Fatalf("seed %d: %s", seed, firstDifference(got, want))
		}
		// Somebody who gets a job and sends it again changes nothing.
		again, err := Decode[Job]([]byte(asJSON(t, back)))
		if err != nil {
			t.Fatal(err)
		}
		again.Canonicalize()
		if got, want := asJSON(t, ToJob(again)), asJSON(t, core); got != want {
			t.Fatalf("seed %d, sent again: %s", seed, firstDifference(got, want))
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			from := max(0, i-6)
			return "got\n" + strings.Join(g[from:i+1], "\n") + "\nwant\n" + strings.Join(w[from:i+1], "\n")
		}
	}
	return "one is longer"
}

// TestDefaults: the values of §1 and NK-11 for the smallest jobs.
func TestDefaults(t *testing.T) {
	type rows map[string]string
	for _, test := range []struct {
		text string
		want rows
	}{
		{`{"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "docker",
			"Services": [{"Checks": [{"Type": "tcp"}], "CheckRestart": {"Limit": 2}}],
			"Templates": [{"ChangeMode": "signal"}, {"ChangeSignal": "sigusr1"}],
			"Artifacts": [{"GetterSource": "http://h/x.bin", "GetterMode": "file"}, {}], "Lifecycle": {},
			"Vault": {}, "VolumeMounts": [{}]}]}]}`, rows{
			"Name": `"j"`, "Region": `"global"`, "Namespace": `"default"`, "Type": `"service"`, "Priority": "50",
			"Datacenters": "null", "NodePool": `""`, "TaskGroups.0.Count": "1", "TaskGroups.0.EphemeralDisk.SizeMB": "300",
			"TaskGroups.0.Update.MaxParallel": "1", "TaskGroups.0.Update.HealthCheck": `"checks"`,
			"TaskGroups.0.Update.MinHealthyTime": "10000000000", "TaskGroups.0.Update.HealthyDeadline": "300000000000",
			"TaskGroups.0.Update.ProgressDeadline": "600000000000", "TaskGroups.0.Update.Stagger": "30000000000",
			"TaskGroups.0.RestartPolicy.Attempts": "2", "TaskGroups.0.RestartPolicy.Interval": "1800000000000",
			"TaskGroups.0.RestartPolicy.Mode": `"fail"`, "TaskGroups.0.ReschedulePolicy.Unlimited": "true",
			"TaskGroups.0.ReschedulePolicy.Delay": "30000000000", "TaskGroups.0.ReschedulePolicy.MaxDelay": "3600000000000",
			"TaskGroups.0.ReschedulePolicy.DelayFunction": `"exponential"`, "TaskGroups.0.Migrate.MaxParallel": "1",
			"TaskGroups.0.Tasks.0.KillTimeout": "5000000000", "TaskGroups.0.Tasks.0.Resources.CPU": "100",
			"TaskGroups.0.Tasks.0.Resources.MemoryMB": "300", "TaskGroups.0.Tasks.0.LogConfig.MaxFiles": "10",
			"TaskGroups.0.Tasks.0.LogConfig.MaxFileSizeMB": "10", "TaskGroups.0.Tasks.0.Lifecycle": "null",
			"TaskGroups.0.Tasks.0.RestartPolicy.Attempts": "2", "TaskGroups.0.Tasks.0.Services.0.Name": `"j-g-t"`,
			"TaskGroups.0.Tasks.0.Services.0.Provider":                    `"consul"`,
			"TaskGroups.0.Tasks.0.Services.0.Checks.0.CheckRestart.Limit": "2",
			"TaskGroups.0.Tasks.0.Services.0.Checks.0.CheckRestart.Grace": "1000000000",
			"TaskGroups.0.Tasks.0.Services.0.Checks.0.OnUpdate":           `"require_healthy"`,
			"TaskGroups.0.Tasks.0.Templates.0.ChangeSignal":               `"SIGHUP"`,
			"TaskGroups.0.Tasks.0.Templates.1.ChangeSignal":               `"SIGUSR1"`,
			"TaskGroups.0.Tasks.0.Templates.1.ChangeMode":                 `"restart"`,
			"TaskGroups.0.Tasks.0.Templates.1.Splay":                      "5000000000",
			"TaskGroups.0.Tasks.0.Templates.1.Perms":                      `"0644"`,
			"TaskGroups.0.Tasks.0.Artifacts.0.RelativeDest":               `"local/x.bin"`,
			"TaskGroups.0.Tasks.0.Artifacts.1.RelativeDest":               `"local/"`,
			"TaskGroups.0.Tasks.0.Vault.Env":                              "true",
			"TaskGroups.0.Tasks.0.VolumeMounts.0.PropagationMode":         `"private"`,
		}},
		{`{"ID": "j", "Type": "batch", "Periodic": {"Spec": "@daily", "TimeZone": ""}, "TaskGroups": [{"Scaling": {"Min": 4},
			"MaxClientDisconnect": 5, "Tasks": [{"Resources": {"Cores": 2}, "RestartPolicy": {"Attempts": 9}}]}]}`, rows{
			"Update": "null", "TaskGroups.0.Update": "null", "TaskGroups.0.Count": "4", "TaskGroups.0.Migrate": "null",
			"TaskGroups.0.RestartPolicy.Attempts": "3", "TaskGroups.0.RestartPolicy.Interval": "86400000000000",
			"TaskGroups.0.Tasks.0.RestartPolicy.Attempts": "9", "TaskGroups.0.Tasks.0.RestartPolicy.Delay": "15000000000",
			"TaskGroups.0.ReschedulePolicy.Attempts": "1", "TaskGroups.0.ReschedulePolicy.Delay": "5000000000",
			"TaskGroups.0.ReschedulePolicy.DelayFunction": `"constant"`, "TaskGroups.0.ReschedulePolicy.Unlimited": "false",
			"TaskGroups.0.Tasks.0.Resources.CPU": "0", "TaskGroups.0.Tasks.0.Resources.Cores": "2",
			"Periodic.Enabled": "true", "Periodic.TimeZone": `"UTC"`, "Periodic.SpecType": `"cron"`,
			"TaskGroups.0.Scaling.Enabled": "true", "TaskGroups.0.Scaling.Type": `"horizontal"`,
		}},
		{`{"ID": "j", "Type": "system", "Update": {"MaxParallel": 3}, "Reschedule": {"Attempts": 7},
			"TaskGroups": [{"Update": {"Canary": 1}}, null, {}]}`, rows{
			"TaskGroups.0.Update.MaxParallel": "3", "TaskGroups.0.Update.Canary": "1", "TaskGroups.1.Update.Canary": "0",
			"TaskGroups.0.ReschedulePolicy.Attempts": "7", "TaskGroups.0.ReschedulePolicy.Delay": "0",
			"TaskGroups.2": "",
		}},
		{`{"Type": "system", "TaskGroups": [{}]}`, rows{"TaskGroups.0.ReschedulePolicy": "null", "Update": "null"}},
	} {
		j, err := Decode[Job]([]byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		j.Canonicalize()
		for path, want := range test.want {
			if got := at(t, j, path); got != want {
				t.Errorf("%s = %s, want %s", path, got, want)
			}
		}
		j.Admit()
		if at(t, j, "Datacenters.0") != `"*"` || at(t, j, "NodePool") != `"default"` {
			t.Error("a registered job runs in all datacenters, in the default pool")
		}
	}
}

// at is the JSON of what path leads to, "" for nothing.
func at(t *testing.T, v any, path string) string {
	t.Helper()
	var here any
	if err := json.Unmarshal([]byte(asJSON(t, v)), &here); err != nil {
		t.Fatal(err)
	}
	for step := range strings.SplitSeq(path, ".") {
		switch v := here.(type) {
		case map[string]any:
			here = v[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(v) {
				return ""
			}
			here = v[n]
		default:
			return ""
		}
	}
	d, _ := json.Marshal(here)
	if f, ok := here.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return string(d)
}

func TestDecodeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": "the body is empty", "  ": "the body is empty", "{": "unexpected EOF", "{} {}": "more than one JSON value",
		`{"Priority": "high"}`:                       "Priority: want a whole number, not string",
		`{"TaskGroups": [{"Count": 1.5}]}`:           "TaskGroups.Count: want a whole number, not number 1.5",
		`{"Affinities": [{"Weight": 200}]}`:          "Affinities.Weight: want a number from -128 to 127, not number 200",
		`{"TaskGroups": {}}`:                         "TaskGroups: want a list, not object",
		`{"Update": {"Stagger": true}}`:              "neither nanoseconds nor a duration",
		`{"Update": {"Stagger": "soon"}}`:            `"soon" is not a duration such as 30s`,
		`{"TaskGroups": [{"Tasks": [{"Env": []}]}]}`: "TaskGroups.Tasks.Env: want an object, not array",
		strings.Repeat(`{"Meta":`, 100):              "nested deeper than 64 levels",
	} {
		_, err := Decode[Job]([]byte(text))
		if err == nil || errkind.Of(err) != errkind.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
	j, err := Decode[Job]([]byte(`{"Update": {"Stagger": "1m", "MinHealthyTime": 5}, "unknown": 1, "id": "any case"}`))
	if err != nil || *j.Update.Stagger != seconds(60) || *j.Update.MinHealthyTime != 5 || *j.ID != "any case" {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"TLSSkipVerify": "tls_skip_verify", "GRPCService": "grpc_service",
		"ID": "id", "MaxParallel": "max_parallel", "CAFile": "ca_file", "EnvoyDNSDiscoveryType": "envoy_dns_discovery_type",
		"SNI": "sni", "ProhibitOverlap": "prohibit_overlap", "HTTPAddr": "http_addr"} {
		if got := snake(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] {
			return
		}
		seen[of] = true
		names := map[string]bool{}
		for _, f := range Fields(of) {
			if names[f.Name] || f.HCL != "" && names[f.HCL] {
				t.Errorf("%s: %s is there twice", of, f.Name)
			}
			names[f.Name], names[f.HCL] = true, true
			walk(f.Type)
		}
		fill(reflect.New(of)) // panics when a default cannot be read
	}
	walk(reflect.TypeFor[Job]())
	if len(seen) < 60 {
		t.Errorf("only %d structs", len(seen))
	}
}

// TestAnswers: nodes, allocations, evaluations and deployments as clients get them.
func TestAnswers(t *testing.T) {
	node := &jobs.Node{ID: jobs.ID{1}, Name: "n1", Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 4000, MemoryMB: 8},
		TotalCores: 4, Cores: []uint16{0, 1}, ReservedPorts: []int{8001, 22, 8000, 8002, 22},
		Networks: []jobs.HostNetwork{{Name: "lan", Address: "10.0.0.1"}},
		Devices:  []jobs.DeviceGroup{{Vendor: "v", Type: "gpu", Name: "x", Instances: []string{"0"}}}},
		Duty: jobs.Duty{Status: jobs.NodeReady, Since: 5e9, Drain: &jobs.Drain{Deadline: 7e9}}}
	job := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "j"}, Groups: []*jobs.TaskGroup{{Name: "g",
		Tasks: []*jobs.Task{{Name: "t", Resources: jobs.Resources{Cores: 2, MemoryMB: 64},
			Parts: map[string]string{"Lifecycle": `{"Hook":"prestart","Sidecar":true}`}}}}}}
	alloc := &jobs.Allocation{ID: jobs.ID{2}, NodeID: node.ID, Job: job, Group: "g", Index: 3,
		Grant: &jobs.Grant{Vector: jobs.Vector{DiskMB: 300}, Ports: []jobs.PortGrant{{Label: "http", Value: 20000, To: 80}},
			Cores: []jobs.CoreGrant{{Task: "t", Cores: []uint16{0, 1}}}, Devices: []jobs.DeviceGrant{{Task: "t",
				Instances: []string{"0"}}}},
		Desired: jobs.Desired{Status: jobs.Run, Migrate: true}, Client: jobs.Client{Status: jobs.ClientRunning},
		Rollout: jobs.Rollout{Deployment: jobs.ID{3}, Health: jobs.Healthy, At: 9e9},
		Lineage: jobs.Lineage{Reschedules: []jobs.Rescheduled{{At: 4, Previous: jobs.ID{5}, Delay: 6}}},
		Stamp:   jobs.Stamp{CreateIndex: 7, ModifyTime: 8}, Metric: &jobs.Metric{Evaluated: 2}}
	eval := &jobs.Evaluation{ID: jobs.ID{4}, JobKey: job.JobKey, WaitUntil: 1e9, Status: jobs.EvalBlocked,
		Outcome: jobs.Outcome{Queued: map[string]int{"g": 83}, Classes: map[uint64]bool{9: true},
			Failed: map[string]*jobs.Metric{"g": {Exhausted: 12, DimensionExhausted: map[string]int{"memory": 12}}}}}
	deployment := &jobs.Deployment{ID: jobs.ID{3}, JobKey: job.JobKey, Status: jobs.DeployRunning,
		Groups: map[string]*jobs.DeploymentGroup{"g": {DesiredTotal: 3, Canaries: []jobs.ID{{2}}, ProgressDeadline: 600e9}}}
	for _, test := range []struct {
		of   any
		want map[string]string
	}{
		{FromNode(node, 9), map[string]string{"ID": `"01000000-0000-0000-0000-000000000000"`, "NodePool": `"default"`,
			"Drain": "true", "SchedulingEligibility": `"ineligible"`, "StatusUpdatedAt": "5", "Attributes": "null",
			"DrainStrategy.ForceDeadline": `"1970-01-01T00:00:07Z"`, "ComputedClass": `"v1:9"`, "SecretID": `""`,
			"ReservedResources.Networks.ReservedHostPorts": `"22,8000-8002"`, "NodeResources.MinDynamicPort": "20000",
			"NodeResources.Devices.0.Instances.0.Healthy": "true", "NodeResources.Cpu.ReservableCpuCores.1": "1"}},
		{FromAllocation(alloc, node, nil), map[string]string{"Name": `"j.g[3]"`, "NodeName": `"n1"`,
			"AllocatedResources.Tasks.t.Cpu.CpuShares": "2000", "AllocatedResources.Tasks.t.Cpu.ReservedCores.1": "1",
			"AllocatedResources.TaskLifecycles.t.Hook": `"prestart"`, "AllocatedResources.Shared.DiskMB": "300",
			"AllocatedResources.Shared.Ports.0.HostIP": `"10.0.0.1"`, "DesiredTransition.Migrate": "true",
			"AllocatedResources.Tasks.t.Devices.0.Type": `"gpu"`, "DeploymentStatus.Healthy": "true",
			"RescheduleTracker.Events.0.RescheduleTime": "4", "CreateIndex": "7", "ModifyTime": "8",
			"Metrics.NodesEvaluated": "2", "Job": "null", "ClientDescription": "null"}},
		{FromAllocation(&jobs.Allocation{Job: job}, nil, nil), map[string]string{"NodeID": `""`, "Metrics": "null"}},
		{FromEvaluation(eval), map[string]string{"Namespace": `"default"`, "JobID": `"j"`, "QueuedAllocations.g": "83",
			"FailedTGAllocs.g.DimensionExhausted.memory": "12", "ClassEligibility.v1:9": "true",
			"WaitUntil": `"1970-01-01T00:00:01Z"`, "NodeID": "null", "BlockedEval": "null"}},
		{FromDeployment(deployment), map[string]string{"TaskGroups.g.DesiredTotal": "3",
			"TaskGroups.g.PlacedCanaries.0": `"02000000-0000-0000-0000-000000000000"`,
			"TaskGroups.g.ProgressDeadline": "600000000000", "TaskGroups.g.RequireProgressBy": `"0001-01-01T00:00:00Z"`}},
	} {
		for path, want := range test.want {
			if got := at(t, test.of, path); got != want {
				t.Errorf("%T: %s = %s, want %s", test.of, path, got, want)
			}
		}
	}
}

// FuzzDecode: no panic; what is decoded and made canonical comes through the core, and twice is as once.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(5) {
		j := &Job{}
		random(rand.New(rand.NewPCG(seed, 2)), reflect.ValueOf(j).Elem(), 0)
		f.Add([]byte(asJSON(f, j)))
	}
	f.Add([]byte(`{"TaskGroups":[null,{"Volumes":{"a":null},"Tasks":[null,{"Services":[null]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Decode[Job](data)
		if err != nil {
			if errkind.Of(err) != errkind.Invalid {
				t.Fatalf("%v is not Invalid", err)
			}
			return
		}
		j.Canonicalize()
		once := asJSON(t, FromJob(ToJob(j)))
		again, err := Decode[Job]([]byte(once))
		if err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		again.Canonicalize()
		if twice := asJSON(t, FromJob(ToJob(again))); twice != once {
			t.Fatal(firstDifference(twice, once))
		}
	})
}
