package arch

import (
	"fmt"
	"slices"
	"strings"
)

// planes are the packages at the root that hold a domain.
var planes = []string{"catalog", "mesh", "secrets", "monitor", "jobs", "usage", "doctor"}

// pure packages decide and do nothing else: state in, state and effects out.
var pure = []string{
	"catalog", "catalog/acl", "catalog/chain", "catalog/entry", "catalog/filter", "catalog/gateway", "catalog/kvstore",
	"catalog/peered", "catalog/query", "catalog/sections", "catalog/statestore",
	"mesh", "mesh/proxy", "mesh/envoy", "api/xds/session", "secrets", "secrets/policy", "secrets/lease", "secrets/mount",
	"monitor", "monitor/frame", "monitor/objects", "monitor/runs", "monitor/selector", "monitor/shards",
	"monitor/agent/points", "monitor/agent/tally",
	"jobs", "jobs/apply", "jobs/consumption", "jobs/diff", "jobs/dispatch", "jobs/everynode", "jobs/evalqueue",
	"jobs/client/allocnet", "jobs/explain", "jobs/feasible", "jobs/groupfate", "jobs/jobwire", "jobs/meshtask",
	"jobs/periodic", "jobs/place",
	"jobs/planner", "jobs/preempt", "jobs/reconcile", "jobs/score", "jobs/spec", "jobs/state", "jobs/validate",
	"usage", "usage/aggregate", "usage/batch", "usage/cloudevents", "usage/dedup", "usage/dogstatsd", "usage/estimate",
	"usage/fate", "usage/limits", "usage/merge", "usage/route", "usage/sketch", "usage/slots", "usage/window", "doctor",
	"doctor/text", "doctor/usual",
	"k8s", "k8s/catalogsync", "k8s/gatewayapi", "k8s/inject",
}

// Single reports whether a package starts no goroutine, in its tests neither, so that the race detector has nothing to
// look for: this one and the pure packages, which TestPurity keeps so, but for those whose tests read a value from
// several goroutines.
func Single(rel string) bool {
	return rel == "test/arch" || slices.Contains(pure, rel) && !slices.Contains(readAtOnce, rel)
}

var readAtOnce = []string{"catalog/entry", "catalog/gateway", "mesh/proxy"}

// pureMay are the packages beside their plane's pure ones that pure packages may
// import: values and tables without clocks, disks or goroutines.
var pureMay = []string{"kit/errkind", "kit/exactjson", "kit/hash", "kit/nesting", "kit/pack",
	"kit/pattern", "kit/tagproto", "core/table"}

// pureNever are standard packages that reach outside or bring chance in.
var pureNever = []string{"os", "sync", "log", "math/rand", "net", "syscall", "runtime", "testing", "unsafe", "context"}

// meshSees are the packages of the catalog that the mesh makes its views from: all are pure
// (catalog/filter is too: what a subset's instances have in common is told in its language).
var meshSees = []string{"catalog", "catalog/chain", "catalog/entry", "catalog/filter", "catalog/gateway",
	"catalog/peered", "catalog/statestore"}

// jobFiles are the packages that job files are read by, and what is shown of jobs.
var jobFiles = []string{"jobs/spec", "jobs/jobwire", "jobs/diff"}

// pureNet are the packages below net that only read and write text.
var pureNet = []string{"net/netip", "net/url"}

// planeOf says whose types an adapter may see. The other adapters state their needs as interfaces.
var planeOf = map[string][]string{
	"api/consulapi": {"catalog"}, "api/dnsapi": {"catalog"}, "api/xds": {"mesh", "catalog"}, "api/vaultapi": {"secrets"},
	"api/sensuapi": {"monitor"}, "api/nomadapi": {"jobs"}, "api/statsdapi": {"usage"}, "api/promapi": {},
	"api/respapi": {"usage"}, "api/usageapi": {"usage"},
	"api/corbelapi": {"doctor"},
}

// apiShared are the folders of api that all adapters may use.
var apiShared = []string{"api/httpx", "api/hothttp"}

// doors names, for each heavy library, the packages that may import it (below
// a named folder too) and why it is kept behind them.
var doors = []struct {
	library string
	by      []string
	why     string
}{
	{"github.com/hashicorp/raft", []string{"core/group", "core/logstore"},
		"consensus stays replaceable; the log store speaks its types"},
	{"github.com/hashicorp/raft-wal", []string{"core/logstore", "core/group"}, "the log store stays replaceable"},
	{"github.com/hashicorp/raft-autopilot", []string{"core/group"}, "it belongs to consensus"},
	{"github.com/hashicorp/memberlist", []string{"core/member"}, "gossip stays replaceable"},
	{"github.com/hashicorp/go-metrics", []string{"core/group", "core/member", "telemetry"},
		"it is global: swallowed in one place"},
	{"github.com/cockroachdb/pebble", []string{"kit/lsm"}, "190 packages"},
	{"github.com/jackc/pgx", []string{"secrets/storage/pgstore", "monitor/eventstore/pgevents", "secrets/engine/database",
		"usage/counterstate/pgblobs"},
		"the PostgreSQL backends, and the engine that makes its roles"},
	{"github.com/go-ldap/ldap", []string{"secrets/directory", "secrets/auth/ldap", "secrets/engine/ldapsecrets",
		"monitor/ldaplogin"},
		"directories are reached in one place of a plane, and asked by who logs in and who changes passwords"},
	{"github.com/go-sql-driver/mysql", []string{"secrets/engine/database"}, "the engine that makes its users"},
	{"google.golang.org/grpc", []string{"core/rpc", "api/xds", "bench", "secrets/plugins/plughost"},
		"linked only where gRPC is spoken"},
	{"github.com/hashicorp/go-plugin", []string{"secrets/plugins/plughost"},
		"it starts programs: whether, how and for how long is decided in one place"},
	{"github.com/envoyproxy/go-control-plane", []string{"mesh/envoy"},
		"each of its packages registers its messages at the start of every process"},
	{"github.com/twmb/franz-go", []string{"usage/eventlog/kafkalog"}, "the Kafka protocol is spoken in one place"},
	{"github.com/twmb/franz-go/pkg/kfake", []string{}, "tests only: brokers in the test's process"},
	{"github.com/redis/go-redis", []string{"usage/remote/rediscache"},
		"a Redis of somebody's own is reached from one place"},
	{"github.com/gorilla/websocket", []string{"api/sensuapi", "bench"}, "linked only where it is spoken"},
	{"github.com/miekg/dns", []string{"api/dnsapi", "bench", "catalog/check"}, "the DNS contract and its load"},
	{"github.com/minio/minio-go", []string{"client/snapstore", "kit/s3bucket"},
		"the S3 protocol, for snapshots and as a storage of secrets"},
	{"github.com/go-jose/go-jose", []string{"kit/jwks"}, "whose token it is, is decided in one place"},
	{"github.com/ProtonMail/go-crypto", []string{"kit/pgp"},
		"what of OpenPGP is done here is little, and decided in one place"},
	{"github.com/pquerna/otp", []string{"secrets/onetime"}, "one-time passwords, and their pictures for phones"},
	{"github.com/pires/go-proxyproto", []string{"api/httpx"},
		"where a connection comes from is decided before anything is read of it"},
	{"github.com/hashicorp/go-discover", []string{"node/clouds"}, "the libraries of clouds, for a child process alone"},
	{"github.com/spf13/cobra", []string{"cli"}, "commands live in cli"},
	{"github.com/dop251/goja", []string{"monitor/script"},
		"what a script may do and for how long is decided in one place"},
	{"github.com/dlclark/regexp2", []string{"monitor/script"}, "its limit is global: set in one place"},
	{"github.com/hashicorp/hcl", []string{"secrets/policy", "node/config", "catalog/acl", "api/consulapi", "cli/snapshots",
		"cli/vaultcmd", "client/vaultagent/agentconfig", "jobs/spec"}, "what users bring is read at the edge"},
	{"github.com/hashicorp/consul-template", []string{"client/vaultagent/agenttemplate"},
		"templates of an agent; it logs through the logger of the process, which is taken over in one place"},
	{"github.com/hashicorp/hcl/v2", []string{"jobs/spec"}, "what a job file may cost is decided in one place"},
	{"github.com/zclconf/go-cty", []string{"jobs/spec"}, "the values of HCL"},
	{"github.com/vishvananda/netlink", []string{"jobs/client/hostnet"}, "the host's network is changed in one place"},
	{"github.com/vishvananda/netns", []string{"jobs/client/hostnet"}, "the host's network is changed in one place"},
	{"github.com/google/nftables", []string{"jobs/client/natrules"}, "rules of packet filters are made in one place"},
	{"github.com/containernetworking/cni", []string{"jobs/client/cninet"}, "plug-ins are asked in one place"},
	{"github.com/prometheus/procfs", []string{"doctor/probe"}, "host counters"},
	{"github.com/safchain/ethtool", []string{"doctor/probe"}, "what the drivers of network cards count"},
	{"github.com/anishathalye/porcupine", []string{"kit/fault/history"}, "judging is not for the binary"},
	{"github.com/prometheus/common", []string{"monitor/agent/points"},
		"what checks write in Prometheus' format is read in one place"},
	{"github.com/prometheus/client_golang", []string{}, "tests only: our own metrics core is in the product"},
	{"github.com/DataDog/datadog-go", []string{}, "tests only: the format oracle"},
	{"github.com/sensu/sensu-go", []string{}, "tests only: the oracle of the monitor's objects"},
	{"pgregory.net/rapid", []string{}, "tests only"},
	{"github.com/axiomhq/hyperloglog", []string{}, "tests only: the oracle of our sketch"},
}

// testHelpers are packages that import testing; no package of the product may import them outside of tests.
var testHelpers = []string{"secrets/storage/storagetest", "secrets/storage/pgstore/pgtest", "secrets/engine/enginetest",
	"secrets/tables/tablestest", "kit/polltest", "kit/leaktest", "kit/loud", "kit/testport", "kit/jwks/jwkstest",
	"kit/tokenreview/reviewtest", "kit/fault/history", "kit/fault/netns", "kit/spawn/harness", "kit/vfs/powertest",
	"kit/limit/limittest", "core/wire/wiretest", "usage/eventlog/logtest",
	"usage/remote/remotetest", "usage/counterstate/blobstest", "kit/redistest", "k8s/kubetest",
	"kit/slapdtest", "secrets/seal/cloudseal/cloudsealtest"}

// inits are the packages that may have an init function, with the reason.
var inits = map[string]string{}

// carriers may put a value into a context, with the reason why it is no program data.
var carriers = map[string]string{
	"telemetry": "the trace and the account of a request, as in OpenTelemetry: it is for who measures, and nothing is " +
		"decided by it",
}

// longFunctions may pass the limit: flat tables or switches, each with its reason.
var longFunctions = map[string]string{}

// longFiles may pass the limit, each with its reason.
var longFiles = map[string]string{}

// The limits in lines.
const (
	maxFileLines     = 600
	maxTestFileLines = 1000
	maxFuncLines     = 70
	maxTestFuncLines = 150 // a table of cases is long and flat
)

func within(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// planeName returns the plane that a package belongs to, or "".
func planeName(path string) string {
	root, _, _ := strings.Cut(path, "/")
	if slices.Contains(planes, root) {
		return root
	}
	return ""
}

// judge returns why the package from may not import to, or "". Both are paths below the module.
func judge(from, to string) string {
	if within(from, "test") || within(to, "gen") {
		return ""
	}
	if slices.Contains(testHelpers, to) && !slices.Contains(testHelpers, from) && !within(from, "lab", "bench") {
		return "it is for tests"
	}
	root, _, _ := strings.Cut(from, "/")
	switch {
	case root == "cmd":
		return only(to, "cmd imports cli alone", "cli")
	case root == "cli":
		if to == "doctor" || to == "doctor/text" {
			return "" // pure: an archive is judged where no server answers
		}
		if within(from, "cli/jobscmd") && slices.Contains(jobFiles, to) {
			return "" // pure: a job file is read on the side of who runs the command
		}
		return only(to, "cli imports node, client, bench, lab, k8s and kit", "cli", "node", "client", "bench", "lab", "k8s",
			"kit")
	case root == "node":
		if within(to, "cmd", "cli", "client", "bench", "lab", "test") {
			return "node knows what is below it alone"
		}
		return ""
	case root == "api":
		return judgeAPI(from, to)
	case slices.Contains(pure, from):
		return judgePure(from, to)
	case planeName(from) != "":
		return judgePlane(from, to)
	case root == "core":
		return only(to, "core imports core, telemetry and kit", "core", "telemetry", "kit")
	case root == "telemetry":
		return only(to, "telemetry imports kit alone", "telemetry", "kit")
	case root == "kit":
		return only(to, "kit imports kit and the standard library", "kit")
	case from == "client/usage" && (to == "usage" || to == "usage/batch"):
		return "" // the binary form of events has one writer and one reader; both packages are pure
	case root == "client":
		return only(to, "client imports kit alone", "client", "kit")
	case root == "bench":
		return only(to, "bench comes through the front door: client and kit", "bench", "client", "kit")
	case root == "lab":
		return only(to, "lab imports client, bench, kit and doctor's types", "lab", "client", "bench", "kit", "doctor")
	case root == "k8s":
		return only(to, "k8s comes through the front door: client and kit", "k8s", "client", "kit")
	case root == "ui":
		return "ui imports nothing"
	}
	return fmt.Sprintf("the folder %q has no place in the layout: add it to test/arch/rules.go", root)
}

func only(to, why string, folders ...string) string {
	if within(to, folders...) {
		return ""
	}
	return why
}

func judgeAPI(from, to string) string {
	folders := append([]string{from, "telemetry", "kit"}, apiShared...)
	for adapter, seen := range planeOf {
		if within(from, adapter) {
			folders = append(append(folders, adapter), seen...)
		}
	}
	return only(to, "an adapter imports its plane, api/httpx, telemetry and kit; for more it states an interface",
		folders...)
}

func judgePure(from, to string) string {
	if slices.Contains(pureMay, to) || (slices.Contains(pure, to) && planeName(to) == planeName(from)) {
		return ""
	}
	if planeName(from) == "mesh" && slices.Contains(meshSees, to) {
		return ""
	}
	return "a pure package imports pure ones of its plane and " + strings.Join(pureMay, ", ")
}

func judgePlane(from, to string) string {
	own := planeName(from)
	if own == "mesh" && (slices.Contains(meshSees, to) || to == "catalog/acl") {
		return ""
	}
	return only(to, "a plane imports its own packages, core, telemetry and kit, and no other plane", own, "core",
		"telemetry", "kit")
}
