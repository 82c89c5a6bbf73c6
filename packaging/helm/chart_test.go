//go:build helm

package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"sigs.k8s.io/yaml"
)

const chartDir = "corbel"

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// cluster is helm with releases in memory and a cluster that takes everything.
func cluster() *action.Configuration { return clusterOf("31") }

// clusterOf is cluster of a minor version.
func clusterOf(minor string) *action.Configuration {
	known := *chartutil.DefaultCapabilities
	known.KubeVersion = chartutil.KubeVersion{Version: "v1." + minor + ".0", Major: "1", Minor: minor}
	return &action.Configuration{Releases: storage.Init(driver.NewMemory()), Capabilities: &known,
		KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard}, Log: func(string, ...any) {}}
}

func install(cfg *action.Configuration, c *chart.Chart, v map[string]any) (string, error) {
	i := action.NewInstall(cfg)
	i.ReleaseName, i.Namespace = "prod", "fleet"
	r, err := i.Run(c, v)
	if err != nil {
		return "", err
	}
	return r.Manifest, nil
}

// objects are the documents of a manifest by kind and name.
func objects(t *testing.T, manifest string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, text := range strings.Split(manifest, "\n---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(o) == 0 {
			continue
		}
		out[o["kind"].(string)+"/"+o["metadata"].(map[string]any)["name"].(string)] = o
	}
	return out
}

func TestLint(t *testing.T) {
	for _, m := range lint.All(chartDir, map[string]any{}, "fleet", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// What is rendered is what a cluster needs, and the servers' configuration is what it says.
func TestRender(t *testing.T) {
	manifest, err := install(cluster(), load(t), values(t, `
server: {replicas: 5, config: {log_level: debug, ports: {grpc_tls: 8503}}}
ui: {ingress: {enabled: true, host: corbel.example}}
`))
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, manifest)
	for _, name := range []string{"StatefulSet/prod-corbel-server", "DaemonSet/prod-corbel-agent", "Ingress/prod-corbel",
		"PodDisruptionBudget/prod-corbel-server", "Secret/prod-corbel-tls", "Secret/prod-corbel-gossip",
		"Secret/prod-corbel-acl", "Service/prod-corbel-server", "ServiceAccount/prod-corbel"} {
		if all[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	var config struct {
		BootstrapExpect int            `json:"bootstrap_expect"`
		RetryJoin       []string       `json:"retry_join"`
		LogLevel        string         `json:"log_level"`
		Ports           map[string]int `json:"ports"`
	}
	data := all["ConfigMap/prod-corbel-server"]["data"].(map[string]any)
	if err := json.Unmarshal([]byte(data["server.json"].(string)), &config); err != nil {
		t.Fatal(err)
	}
	if config.BootstrapExpect != 5 || len(config.RetryJoin) != 5 || config.LogLevel != "debug" ||
		config.Ports["grpc_tls"] != 8503 || config.Ports["https"] != 8501 || config.RetryJoin[4] !=
		"prod-corbel-server-4.prod-corbel-server.fleet.svc" {
		t.Errorf("%+v", config)
	}
	pod := all["StatefulSet/prod-corbel-server"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	if args := fmt.Sprint(container["args"]); !strings.HasSuffix(args, "--bind $(POD_IP)]") || container["env"] == nil {
		t.Errorf("%s, %v: a pod listens at its own address", args, container["env"])
	}
	security := container["securityContext"].(map[string]any)
	if security["readOnlyRootFilesystem"] != true || pod["securityContext"].(map[string]any)["runAsUser"] != 65532.0 ||
		pod["terminationGracePeriodSeconds"] != 120.0 || container["readinessProbe"] == nil {
		t.Errorf("%v", pod)
	}
	if manifest, err = install(cluster(), load(t), values(t, `agent: {enabled: false}`)); err != nil {
		t.Fatal(err)
	}
	all = objects(t, manifest)
	if all["DaemonSet/prod-corbel-agent"] != nil || all["ConfigMap/prod-corbel-agent"] != nil || all["Ingress/prod-corbel"] != nil {
		t.Error("what is off is rendered")
	}
	manifest, err = install(cluster(), load(t), values(t, `tls: {from: certManager, issuer: {name: ours}}`))
	if err != nil || objects(t, manifest)["Certificate/prod-corbel-tls"] == nil {
		t.Errorf("no certificate is asked for: %v", err)
	}
}

// The parts beside a cluster are there when they are asked for, with the rights that they need and the arguments that
// the binary takes.
func TestRenderBeside(t *testing.T) {
	manifest, err := install(cluster(), load(t), values(t, `
syncCatalog: {enabled: true, gateways: true, tokenSecret: sync, writeNamespace: consul}
connectInject: {enabled: true, authMethod: pods, sidecarResources: {limits: {memory: 64Mi}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, manifest)
	for _, name := range []string{"Deployment/prod-corbel-sync-catalog", "ClusterRole/fleet-prod-corbel-sync-catalog",
		"ClusterRoleBinding/fleet-prod-corbel-sync-catalog", "Role/prod-corbel-sync-catalog",
		"RoleBinding/prod-corbel-sync-catalog", "ServiceAccount/prod-corbel-sync-catalog",
		"Deployment/prod-corbel-connect-inject", "Service/prod-corbel-connect-inject",
		"Secret/prod-corbel-connect-inject-tls", "ServiceAccount/prod-corbel-connect-inject",
		"MutatingWebhookConfiguration/fleet-prod-corbel-connect-inject"} {
		if all[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	args := func(name string) string {
		pod := all[name]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		b, err := json.Marshal(pod["containers"].([]any)[0].(map[string]any)["args"])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, want := range map[string][]string{
		"Deployment/prod-corbel-sync-catalog": {`"--http-addr=https://prod-corbel.fleet.svc:8501"`, `"--gateways=true"`,
			`"--k8s-write-namespace=consul"`, `"--deny-k8s-namespace=kube-system"`},
		"Deployment/prod-corbel-connect-inject": {`"--auth-method=pods"`, `"--image=corbel:0.1.0"`, `memory`},
	} {
		for _, w := range want {
			if got := args(name); !strings.Contains(got, w) {
				t.Errorf("%s: %s lacks %s", name, got, w)
			}
		}
	}
	hook := all["MutatingWebhookConfiguration/fleet-prod-corbel-connect-inject"]["webhooks"].([]any)[0].(map[string]any)
	bundle := hook["clientConfig"].(map[string]any)["caBundle"]
	if secret := all["Secret/prod-corbel-connect-inject-tls"]["data"].(map[string]any); bundle == nil || bundle != secret["ca.crt"] {
		t.Error("the webhook does not trust its own certificate")
	}
	agent := all["ConfigMap/prod-corbel-agent"]["data"].(map[string]any)["agent.json"].(string)
	if !strings.Contains(agent, `"http": "0.0.0.0"`) || !strings.Contains(manifest, "hostPort: 8500") {
		t.Error("pods cannot reach the agent of their host")
	}
}

// Wrong values are refused by their name.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"server: {replicas: 2}":                                       "replicas",
		"server: {storage: {size: ten}}":                              "size",
		"servers: {replicas: 3}":                                      "servers",
		"datacenter: 'DC 1'":                                          "datacenter",
		"tls: {from: nobody}":                                         "from",
		"tls: {from: secret}":                                         "existingSecret",
		"tls: {from: certManager}":                                    "name",
		"ui: {ingress: {enabled: true}}":                              "host",
		"image: {repository: x, pullPolicy: Once}":                    "pullPolicy",
		"syncCatalog: {nodePortSyncType: Any}":                        "nodePortSyncType",
		"connectInject: {failurePolicy: Perhaps}":                     "failurePolicy",
		"syncCatalog: {enabled: true, toConsul: false, toK8S: false}": "toK8S",
	} {
		if _, err := install(cluster(), load(t), values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s in it", text, err, want)
		}
	}
}

// Sidecars need Kubernetes 1.29, the rest of the chart 1.27.
func TestOldClusters(t *testing.T) {
	const sidecars = "connectInject: {enabled: true}"
	for _, c := range []struct{ minor, values, want string }{
		{"26", "{}", "kubeVersion"}, {"27", "{}", ""}, {"28", sidecars, "needs Kubernetes 1.29 or later"}, {"29", sidecars, ""},
	} {
		_, err := install(clusterOf(c.minor), load(t), values(t, c.values))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("1.%s with %s: %v, want %q", c.minor, c.values, err, c.want)
		}
	}
}

// lastChart is the chart of the last release, of the commit that stands for it in upgrades of processes too.
func lastChart(t *testing.T) *chart.Chart {
	t.Helper()
	text, err := os.ReadFile("../../test/fault/upgraderuns/last.go")
	if err != nil {
		t.Fatal(err)
	}
	commit := regexp.MustCompile(`const LastRelease = "([0-9a-f]+)"`).FindSubmatch(text)
	if commit == nil {
		t.Fatal("no LastRelease in test/fault/upgraderuns/last.go")
	}
	archive, err := exec.Command("git", "archive", "--format=tar.gz", string(commit[1]), chartDir).Output()
	if err != nil {
		notRun(t, "the last release's commit is not in this clone: "+err.Error())
	}
	c, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An upgrade from the last release's chart, with the values that it was installed with, keeps what a cluster refuses to
// change of a StatefulSet and of a DaemonSet, and where servers find their disks and secrets.
func TestUpgradeFromLastRelease(t *testing.T) {
	cfg := cluster()
	before, err := install(cfg, lastChart(t), values(t, `
server: {replicas: 5, storage: {size: 20Gi, className: fast}, config: {log_level: debug}}
connectInject: {enabled: true}
syncCatalog: {enabled: true, tokenSecret: sync}
`))
	if err != nil {
		t.Fatal(err)
	}
	up := action.NewUpgrade(cfg)
	up.Namespace, up.ReuseValues = "fleet", true
	c := load(t)
	c.Metadata.Version, c.Metadata.AppVersion = "0.2.0", "0.2.0"
	r, err := up.Run("prod", c, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	was, is := objects(t, before), objects(t, r.Manifest)
	for name, object := range was {
		if is[name] == nil {
			t.Errorf("%s is gone", name)
			continue
		}
		old, _ := object["spec"].(map[string]any)
		spec, _ := is[name]["spec"].(map[string]any)
		for _, field := range []string{"selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates", "replicas"} {
			if !reflect.DeepEqual(old[field], spec[field]) {
				t.Errorf("%s: %s was %v and is %v", name, field, old[field], spec[field])
			}
		}
	}
	if !strings.Contains(r.Manifest, `\"log_level\": \"debug\"`) || !strings.Contains(r.Manifest, "storage: 20Gi") {
		t.Error("values of the installation were lost")
	}
}

// An upgrade to other values changes no selector, and one that is not to be is refused.
func TestUpgrade(t *testing.T) {
	cfg, c := cluster(), load(t)
	before, err := install(cfg, c, values(t, `server: {replicas: 3}`))
	if err != nil {
		t.Fatal(err)
	}
	up := action.NewUpgrade(cfg)
	up.Namespace, up.ReuseValues = "fleet", true
	c = load(t)
	c.Metadata.Version, c.Metadata.AppVersion = "0.2.0", "0.2.0"
	r, err := up.Run("prod", c, values(t, `server: {replicas: 5}`))
	if err != nil {
		t.Fatal(err)
	}
	selector := func(manifest string) string {
		b, err := json.Marshal(objects(t, manifest)["StatefulSet/prod-corbel-server"]["spec"].(map[string]any)["selector"])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := selector(before), selector(r.Manifest); a != b || a == "null" {
		t.Errorf("the selector was %s and is %s", a, b)
	}
	if !strings.Contains(r.Manifest, "corbel:0.2.0") {
		t.Error("the image is not that of the new release")
	}
	if _, err := up.Run("prod", c, values(t, `server: {replicas: 4}`)); err == nil {
		t.Error("four servers are taken")
	}
}
