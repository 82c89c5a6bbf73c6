package main

import (
	"fmt"
	"slices"
	"strings"
)

// part is what the tests of one plane are: its packages, and those tests of the
// shared packages that are about it, by their names.
type part struct {
	name     string
	packages []string // patterns of go test
	node     string   // tests of node
	stories  string   // scripts of test/e2e, as TestScripts/NAME
	e2e      string   // other tests of test/e2e
}

// parts are what -plane knows.
var parts = []part{
	{"catalog", []string{"./catalog/...", "./api/consulapi/...", "./api/dnsapi/...", "./api/hothttp/...",
		"./node/planes/catalog/..."},
		"Aliases|Forward|Snapshots|Catalog|Since|Watches|Tokens|Upload|Workload|Parked|Paths",
		"^(agent|kv|lock|services|nodes|watch|snapshot|consul|consul_acl|bootstrap)$", "Drain|Rolling"},
	{"mesh", []string{"./mesh/...", "./api/xds/...", "./node/planes/mesh/..."},
		"Authority|Mesh|Leaves|Dataplanes|AgentsAreFed|XDS",
		"^(consul_mesh)$", "Mesh|Gateway|Transparent|Extensions|BuiltIn"},
	{"secrets", []string{"./secrets/...", "./api/vaultapi/...", "./node/planes/secrets/..."},
		"Secrets|Diagnose", "^(vault.*|secrets_.*)$", "Planted|Needles|Browser"},
	{"monitor", []string{"./monitor/...", "./api/sensuapi/...", "./node/planes/monitor/..."},
		"Monitor|Hosts|Fleet|Administrator", "^(monitor_.*|sensu_.*)$", "^$"},
	{"doctor", []string{"./doctor/...", "./telemetry/...", "./lab/...", "./node/planes/doctor/..."},
		"Doctor|Diagnostics|Logs|Logging", "^(lab|debug|traces)$", "Runbook|Promtool|Metric"},
}

func planes() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// testPlane runs the tests of one plane: its packages under the race detector,
// and of the packages that all planes share those tests that are about it.
func (r *runner) testPlane(name string) error {
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("-plane: no plane is called %q: say one of %s", name, planes())
	}
	p := parts[i]
	race := []string{"-race", "-p=2", r.testTimeout()}
	r.step(step{name: name, what: "the plane's packages", run: func(r *runner) {
		r.goTest("test", r.root, append(race, p.packages...)...)
	}})
	r.step(step{name: "node", what: "how it is wired", run: func(r *runner) {
		r.goTest("test", r.root, append(race, "-run="+p.node, "./node/...")...)
	}})
	r.step(step{name: "e2e", what: "its stories", run: func(r *runner) {
		r.goTest("test", r.root, r.testTimeout(), "-run=^TestScripts$/"+p.stories, "./test/e2e")
		r.goTest("test", r.root, r.testTimeout(), "-run="+p.e2e, "./test/e2e")
	}})
	return nil
}

// slow are the packages that -quick leaves out: each takes more than a few
// seconds, since it starts servers, waits for clocks, or tries many seeds.
var slow = []string{"node", "test", "lab", "bench", "cli/redirect", "core/group", "core/wan", "api/consulapi",
	"kit/fault", "kit/ws",
	"mesh/leaf", "mesh/proxy", "monitor", "secrets/keeper", "secrets/storage/pgstore", "secrets/storage/raftstore"}

// quick runs what fits in a minute: formatting, vet, and the tests of all
// packages that are fast, without the race detector.
func (r *runner) quick() {
	r.step(step{name: "gofmt", what: "formatting", run: (*runner).gofmt})
	r.step(step{name: "test", what: "fast tests, with vet's checks", run: func(r *runner) {
		packages, err := r.fast()
		if err != nil {
			r.fail("test", err.Error())
			return
		}
		r.goTest("test", r.root, append([]string{"-short", "-p=2", r.testTimeout()}, packages...)...)
	}})
}

// fast lists the packages of the product that -quick tests, and test/arch.
func (r *runner) fast() ([]string, error) {
	out, err := r.output(r.root, "go", "list", "./...")
	if err != nil {
		return nil, err
	}
	packages := []string{"./test/arch"}
	for line := range strings.Lines(out) {
		path := strings.TrimSpace(line)
		if !slices.ContainsFunc(slow, func(dir string) bool { return strings.HasPrefix(short(path)+"/", dir+"/") }) {
			packages = append(packages, path)
		}
	}
	return packages, nil
}
