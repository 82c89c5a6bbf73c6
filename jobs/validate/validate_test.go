package validate

import (
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/spec"
)

// good is a job without a fault; the cases change a piece of it.
const good = `
job "web" {
  type     = "service"
  priority = 50
  # job
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  group "api" {
    count = 2
    # group
    network {
      mode = "bridge"
      port "http" {}
      port "admin" {
        static = 9000
      }
    }
    service {
      name = "web"
      port = "http"
      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "2s"
      }
    }
    task "main" {
      driver = "docker"
      # task
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
`

func findings(t *testing.T, text string) Findings {
	t.Helper()
	j, err := spec.Parse([]byte(text), spec.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	j.Canonicalize()
	j.Admit()
	return Job(j)
}

// cases are a piece of good, what is there instead, and the problem.
var cases = []struct{ piece, with, want string }{
	{`"web" {`, `"w eb" {`, `id: "w eb" has spaces`}, {`"service"`, `"daemon"`, `type: "daemon" is not one of "service"`},
	{"priority = 50", "priority = 0", "priority: 0 is not from 1 to 100"},
	{"priority = 50", "priority = 101", "priority: 101 is not from 1 to 100"},
	{"# job", `datacenters = [""]`, "datacenters: there is an empty name"},
	{"# job", "multiregion {\n}", "multiregion: not supported"},
	{"# job", "update {\nmin_healthy_time = \"10m\"\n}",
		"update: min_healthy_time 10m0s is not below healthy_deadline 5m0s"},
	{"# job", "periodic {\ncrons = [\"@daily\"]\n}", "periodic: only batch and sysbatch jobs are periodic"},
	{"# job", "parameterized {\npayload = \"maybe\"\n}", `parameterized.payload: "maybe" is not one of`},
	{"# job", "parameterized {\nmeta_required = [\"a\"]\nmeta_optional = [\"a\"]\n}", `meta "a" is required and optional`},
	{"# job", "group \"api\" {\ntask \"t\" {\ndriver = \"d\"\n}\n}", `two groups are called "api"`},
	{"# job", "group \"x\" {\n}", "group.x: the group has no tasks"},
	{`value     = "linux"`, `operator = "near"`, `constraint[0]: constraint "${attr.kernel.name} near ": unknown operator "near"`},
	{`value     = "linux"`, `regexp = "("`, "missing closing )"}, {`value     = "linux"`, "", "constraint[0].value: it is missing"},
	{`value     = "linux"`, `version = "abc"`, "constraint[0]"},
	{`value     = "linux"`, "value = 1\n}\nconstraint {\ndistinct_property = \"${meta.rack}\"\nvalue = 0",
		"constraint[1].value: distinct_property counts from 1"},
	{`value     = "linux"`, "value = 1\n}\nconstraint {\noperator = \"distinct_hosts\"\nvalue = \"perhaps\"",
		"constraint[1].value: distinct_hosts is true or false"},
	{"# job", "affinity {\nattribute = \"${meta.a}\"\nvalue = \"b\"\nweight = 0\n}", "affinity[0].weight: 0 is not"},
	{"# job", "affinity {\nattribute = \"${meta.a}\"\nvalue = \"b\"\nweight = 101\n}", "affinity[0].weight: 101 is not"},
	{"# job", "spread {\nattribute = \"a\"\ntarget \"x\" {\npercent = 60\n}\ntarget \"y\" {\npercent = 60\n}\n}",
		"spread[0]: the targets have 120 percent together"},
	{"# job", "spread {\nattribute = \"a\"\ntarget \"x\" {\n}\ntarget \"x\" {\n}\n}", `spread[0]: two targets are for "x"`},
	{"# job", "spread {\n}", "spread[0].attribute: it is missing"},
	{"count = 2", "count = -1", "group.api.count: -1 is below 0"},
	{`"service"`, `"system"`, "group.api.count: a system job runs once on a node"},
	{"# group", "restart {\nmode = \"never\"\n}", `group.api.restart.mode: "never" is not one of`},
	{"# group", "restart {\ninterval = \"1s\"\n}", "group.api.restart.interval: 1s: at least 5s"},
	{"# group", "restart {\nattempts = 10\ndelay = \"10m\"\n}", "10 attempts with a delay of 10m0s do not fit into 30m0s"},
	{"# group", "reschedule {\ndelay = \"1s\"\n}", "group.api.reschedule.delay: 1s: at least 5s"},
	{"# group", "reschedule {\ndelay_function = \"random\"\n}", `group.api.reschedule.delay_function: "random"`},
	{"# group", "reschedule {\nunlimited = false\nattempts = 2\ninterval = \"10s\"\n}", "interval: 10s: at least 15s"},
	{"# group", "reschedule {\nmax_delay = \"10s\"\n}", "max_delay: 10s is below the delay 30s"},
	{"# group", "migrate {\nhealth_check = \"x\"\n}", `group.api.migrate.health_check: "x"`},
	{"# group", "update {\nhealth_check = \"x\"\n}", `group.api.update.health_check: "x"`},
	{"# group", "update {\nprogress_deadline = \"1m\"\n}", "healthy_deadline 5m0s is not below progress_deadline 1m0s"},
	{"# group", "scaling {\nmin = 3\nmax = 2\n}", "group.api.scaling: min 3 is above max 2"},
	{"# group", "scaling {\nmin = 3\nmax = 9\n}", "group.api.scaling: count 2 is not from min 3 to max 9"},
	{"# group", "disconnect {\nreconcile = \"x\"\n}", `group.api.disconnect.reconcile: "x"`},
	{"# group", "disconnect {\nlost_after = \"1h\"\nstop_on_client_after = \"1h\"\n}", "exclude each other"},
	{"# group", "ephemeral_disk {\nsize = 100\n}", "log storage (100 MB) must be less than requested disk capacity"},
	{"# group", "network {\n}", "group.api: a group has one network at most"},
	{"# group", "volume \"v\" {\ntype = \"nfs\"\n}", `group.api.volume.v.type: "nfs"`},
	{"# group", "volume \"v\" {\ntype = \"host\"\n}", `group.api.volume.v.source: it is missing`},
	{`mode = "bridge"`, `mode = "tunnel"`, `group.api.network.mode: "tunnel" is not one of`},
	{`port "http" {}`, "port \"http\" {\nstatic = 9000\n}", "two ports are 9000"},
	{`port "http" {}`, "port \"http\" {\nstatic = 70000\n}", "port.http.static: 70000 is no port"},
	{`port "http" {}`, "port \"admin\" {}", "port.admin: two ports have this label"},
	{`name = "web"`, `name = "web_1"`, `"web_1" is no name for DNS`},
	{`name = "web"`, "name = \"web\"\nprovider = \"etcd\"", `service.web.provider: "etcd"`},
	{`name = "web"`, "name = \"web\"\nconnect {\n}", "service.web.connect: it has one of native, sidecar_service"},
	{`name = "web"`, "name = \"web\"\nconnect {\nsidecar_service {\nproxy {\nupstreams {\n}\n}\n}\n}",
		"upstreams[0].destination_name: it is missing"},
	{`type     = "http"`, `type = "ping"`, `check[0].type: "ping" is not one of`},
	{`path     = "/"`, `path = "http://other/"`, `check[0].path: "http://other/" is no path`},
	{`interval = "10s"`, `interval = "1ms"`, "check[0].interval: 1ms: at least 1s"},
	{`timeout  = "2s"`, "", "check[0].timeout: 0s: at least 1s"},
	{`driver = "docker"`, "", "group.api.task.main.driver: it is missing"},
	{`task "main"`, `task "../x"`, "the name has slashes"},
	{`cpu    = 100`, `cpu = 0`, "resources.cpu: 0 MHz: at least 1"}, {"memory = 64", "memory = 9", "resources.memory: 9 MB"},
	{"memory = 64", "memory = 64\nmemory_max = 32", "memory_max: 32 MB is below the memory of 64 MB"},
	{"cpu    = 100", "cpu = 100\ncores = 1", "use cpu or cores, not both"},
	{"# task", "kill_timeout = \"-1s\"", "kill_timeout: it is below 0"},
	{"# task", "lifecycle {\nhook = \"never\"\n}", `lifecycle.hook: "never"`},
	{"# task", "lifecycle {\nhook = \"prestart\"\n}", "each task has a lifecycle"},
	{"# task", "template {\ndestination = \"a\"\n}", "template[0]: a template has source or data"},
	{"# task", "template {\ndata = \"x\"\n}", "template[0].destination: it is missing"},
	{"# task", "template {\ndata = \"x\"\ndestination = \"../../x\"\n}", `template[0].destination: "../../x" leads out`},
	{"# task", "template {\ndata = \"x\"\ndestination = \"a\"\nperms = \"rwx\"\n}", `perms: "rwx" is no octal mode`},
	{"# task", "template {\nsource = \"../../../etc/passwd\"\ndestination = \"a\"\n}", "template[0].source"},
	{"# task", "template {\ndata = \"x\"\ndestination = \"a\"\nwait {\nmin = \"5s\"\nmax = \"1s\"\n}\n}",
		"min 5s is above max 1s"},
	{"# task", "artifact {\ndestination = \"local/../../../x\"\nsource = \"u\"\n}", "artifact[0].destination"},
	{"# task", "artifact {\n}", "artifact[0].source: it is missing"},
	{"# task", "dispatch_payload {\nfile = \"x\"\n}", "dispatch_payload: the job is not parameterized"},
	{"# task", "volume_mount {\nvolume = \"v\"\ndestination = \"/v\"\n}", `the group has no volume "v"`},
	{"# task", "vault {\npolicies = [\"root\"]\n}", "vault.policies: root is not given"},
	{"# task", "vault {\nchange_mode = \"x\"\n}", `vault.change_mode: "x"`},
	{"# task", "identity {\nname = \"a b\"\n}", "identity[0].name"},
	{"# task", "kind = \"connect-proxy:none\"", `the group has no service "none" with connect`},
	{"# task", "logs {\nmax_files = 0\n}", "logs.max_files: 0: at least 1"},
	{"# task", "leader = true\n}\ntask \"second\" {\ndriver = \"d\"\nleader = true", "2 tasks are leaders"},
	{"# task", "}\ntask \"main\" {\ndriver = \"d\"", `two tasks are called "main"`},
}

func TestRules(t *testing.T) {
	if f := findings(t, good); len(f.Problems)+len(f.Warnings) > 0 {
		t.Fatalf("%q", f)
	}
	for _, test := range cases {
		if strings.Count(good, test.piece) != 1 {
			t.Errorf("%q is not once in the job", test.piece)
			continue
		}
		f := findings(t, strings.Replace(good, test.piece, test.with, 1))
		if !slices.ContainsFunc(f.Problems, func(p string) bool { return strings.Contains(p, test.want) }) {
			t.Errorf("%q with %q: %q, want %s", test.piece, test.with, f.Problems, test.want)
		}
	}
}

// TestGood: jobs that look strange and are not.
func TestGood(t *testing.T) {
	for _, test := range []struct{ piece, with, warning string }{
		{"count = 2", "count = 0", ""}, {"# job", "update {\nmax_parallel = 0\n}", ""},
		{"# job", "update {\nmax_parallel = 5\n}", "max_parallel 5 is more than the count 2"},
		{"# job", "update {\nauto_promote = true\n}", "auto_promote has nothing to promote"},
		{`port = "http"`, `port = "none"`, `no network of the group has the port "none"`},
		{"# group", "max_client_disconnect = \"1h\"", "deprecated: use disconnect"},
		{"# task", "template {\ndata = \"x\"\ndestination = \"../alloc/data/x\"\n}", ""},
		{"# task", "template {\ndata = \"x\"\ndestination = \"${NOMAD_SECRETS_DIR}/x\"\n}", ""},
		{`name = "web"`, `name = "web-${NOMAD_ALLOC_INDEX}"`, ""},
		{`name = "web"`, "name = \"web\"\nconnect {\nsidecar_service {\n}\n}", ""},
	} {
		f := findings(t, strings.Replace(good, test.piece, test.with, 1))
		if len(f.Problems) > 0 || test.warning == "" && len(f.Warnings) > 0 ||
			!strings.Contains(strings.Join(f.Warnings, "\n"), test.warning) {
			t.Errorf("%q: %q", test.with, f)
		}
	}
}

// TestAllAtOnce: all problems are told together, in the contract's form, and a bounded number of them.
func TestAllAtOnce(t *testing.T) {
	text := good
	for _, test := range cases[:4] {
		text = strings.Replace(text, test.piece, test.with, 1)
	}
	f := findings(t, text)
	if got := Text(f.Problems); !strings.HasPrefix(got, "3 errors occurred:\n\t* id: ") ||
		!strings.HasSuffix(got, "\n\n") {
		t.Errorf("%q", got)
	}
	if Text(nil) != "" || Text([]string{"x"}) != "1 error occurred:\n\t* x\n\n" {
		t.Error("the form of one error, and of none")
	}
	j := &jobwire.Job{}
	for range 1000 {
		j.TaskGroups = append(j.TaskGroups, &jobwire.TaskGroup{})
	}
	j.Canonicalize()
	if f := Job(j); len(f.Problems) != maxListed {
		t.Errorf("%d problems", len(f.Problems))
	}
}

// FuzzJob: no panic for whatever can be decoded.
func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"TaskGroups":[{"Networks":[{}],"Scaling":{"Max":1},"Services":[{"Connect":{"SidecarService":{"Proxy":{}}},
		"Checks":[{}]}],"Disconnect":{},"Tasks":[{"Templates":[{}],"Artifacts":[{}],"Identities":[{}],"Vault":{},
		"VolumeMounts":[{}],"Resources":{"Devices":[{}]}}]}],"Periodic":{},"ParameterizedJob":{}}`))
	f.Add([]byte(`{"Type":"batch","Periodic":{"Spec":"* * * * *"},"Constraints":[{"Operand":"regexp","RTarget":"("}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := jobwire.Decode[jobwire.Job](data)
		if err != nil {
			return
		}
		j.Canonicalize()
		first := Job(j)
		if second := Job(j); !slices.Equal(first.Problems, second.Problems) {
			t.Fatalf("%q, and then %q", first.Problems, second.Problems)
		}
	})
}
