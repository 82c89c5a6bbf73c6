package inject

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB) []byte { return readOf(t, "review") }

func readOf(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func options() *Options {
	return &Options{Image: "corbel:1", Agent: "$(HOST_IP):8500", Deny: []string{"kube-system"}}
}

// change is the review with some of its pod changed.
func change(t testing.TB, f func(request, metadata, spec object)) []byte {
	t.Helper()
	var in object
	if err := json.Unmarshal(read(t), &in); err != nil {
		t.Fatal(err)
	}
	request := in["request"].(object)
	o := request["object"].(object)
	f(request, o["metadata"].(object), o["spec"].(object))
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func ask(t testing.TB, text []byte, o *Options) *response {
	t.Helper()
	answer, err := Review(text, o)
	if err != nil {
		t.Fatal(err)
	}
	var out review
	if err := json.Unmarshal(answer, &out); err != nil || out.Response == nil || out.APIVersion != reviewVersion {
		t.Fatalf("%v in %s", err, answer)
	}
	return out.Response
}

// apply carries a JSON patch out, as far as Review uses it.
func apply(t testing.TB, o object, patch []byte) {
	t.Helper()
	var ops []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if op.Op != "add" {
			t.Fatalf("operation %s", op.Op)
		}
		at := o
		parts := strings.Split(op.Path[1:], "/")
		for _, p := range parts[:len(parts)-1] {
			if list, ok := at[p].([]any); ok {
				at[p] = slices.Insert(list, 0, op.Value)
				at = nil
				break
			}
			at = at[p].(object)
		}
		if at != nil {
			at[strings.ReplaceAll(parts[len(parts)-1], "~1", "/")] = op.Value
		}
	}
}

// A pod that asks for it gets a sidecar that knows its service, and another review of it changes nothing.
func TestInjected(t *testing.T) {
	o := options()
	o.AuthMethod, o.Resources = "k8s", json.RawMessage(`{"limits":{"memory":"64Mi"}}`)
	for _, inits := range []bool{false, true} {
		text := change(t, func(_, _, spec object) {
			if inits {
				spec["initContainers"] = []object{{"name": "migrate"}}
			}
		})
		r := ask(t, text, o)
		if !r.Allowed || r.PatchType != "JSONPatch" || r.UID != "7c0e7a36-1ca5-4d53-8b14-6f3b6f0b3d5d" {
			t.Fatalf("%+v", r)
		}
		again := change(t, func(request, _, spec object) {
			if inits {
				spec["initContainers"] = []any{object{"name": "migrate"}}
			}
			apply(t, request["object"].(object), r.Patch)
			list := spec["initContainers"].([]any)
			c := list[0].(object)
			want := []any{"k8s", "sidecar", "--http-addr=$(HOST_IP):8500", "--service=web", "--pod-ip=$(POD_IP)",
				"--pod-name=$(POD_NAME)", "--pod-namespace=$(POD_NAMESPACE)", "--port=8080", "--upstream=db:5432",
				"--upstream=cache:6379", "--tag=v1", "--tag=canary", "--meta=owner=team $$HOME", "--auth-method=k8s"}
			if c["name"] != ContainerName || c["image"] != "corbel:1" || !reflect.DeepEqual(c["args"], want) ||
				c["restartPolicy"] != "Always" || c["resources"] == nil {
				t.Errorf("%v", c)
			}
			if inits && (len(list) != 2 || list[1].(object)["name"] != "migrate") {
				t.Errorf("the pod's own containers: %v", list)
			}
		})
		if r := ask(t, again, o); !r.Allowed || len(r.Patch) > 0 {
			t.Errorf("a second time: %s", r.Patch)
		}
	}
}

// What is decided of pods, and in which words they are refused.
func TestDecisions(t *testing.T) {
	annotate := func(pairs ...string) func(_, m, _ object) {
		return func(_, m, _ object) {
			for i := 0; i < len(pairs); i += 2 {
				m["annotations"].(object)["consul.hashicorp.com/"+pairs[i]] = pairs[i+1]
			}
		}
	}
	for name, test := range map[string]struct {
		change  func(request, metadata, spec object)
		options func(*Options)
		patch   string // a part of it; "": none
		refused string
	}{
		"not asked for":  {change: annotate("connect-inject", "false")},
		"no annotations": {change: func(_, m, _ object) { delete(m, "annotations") }},
		"asked by default": {change: func(_, m, _ object) { delete(m, "annotations"); delete(m, "labels") },
			options: func(o *Options) { o.Default = true }, patch: `{"op":"add","path":"/metadata/labels","value":{"consul`},
		"system's namespace":  {change: func(r, _, _ object) { r["namespace"] = "kube-system" }},
		"another object":      {change: func(r, _, _ object) { r["kind"].(object)["kind"] = "Service" }},
		"an update":           {change: func(r, _, _ object) { r["operation"] = "UPDATE" }},
		"neither yes nor no":  {change: annotate("connect-inject", "please"), refused: "true or false"},
		"a name of its own":   {change: annotate("connect-service", "front"), patch: "--service=front"},
		"two services":        {change: annotate("connect-service", "a,b"), refused: "one service"},
		"a named port":        {change: annotate("connect-service-port", "admin"), patch: "--port=9090"},
		"a port by number":    {change: annotate("connect-service-port", "7000"), patch: "--port=7000"},
		"an unknown port":     {change: annotate("connect-service-port", "grpc"), refused: "connect-service-port"},
		"an upstream of none": {change: annotate("connect-service-upstreams", "db"), refused: "NAME:PORT"},
		"another datacenter":  {change: annotate("connect-service-upstreams", "db:1:dc2"), refused: "this datacenter"},
		"a port too high":     {change: annotate("connect-service-upstreams", "db:70000"), refused: "1 to 65535"},
		"redirection":         {change: annotate("transparent-proxy", "true"), refused: "connect-service-upstreams"},
		"the host's network":  {change: func(_, _, s object) { s["hostNetwork"] = true }, refused: "host's network"},
		"a sidecar already": {change: func(_, _, s object) { s["initContainers"] = []object{{"name": ContainerName}} },
			refused: "of its own"},
		"no containers": {change: func(_, _, s object) { s["containers"] = nil }, refused: "no containers"},
		"no token": {change: func(_, _, s object) { s["automountServiceAccountToken"] = false },
			options: func(o *Options) { o.AuthMethod = "k8s" }, refused: "automountServiceAccountToken"},
		"the default account": {change: func(_, _, s object) { s["serviceAccountName"] = "default" }, patch: "--service=app"},
		"no ports": {change: func(_, _, s object) { delete(s["containers"].([]any)[0].(object), "ports") },
			patch: `"--pod-namespace=$(POD_NAMESPACE)","--upstream`},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			if test.options != nil {
				test.options(o)
			}
			r := ask(t, change(t, test.change), o)
			switch {
			case test.refused != "":
				if r.Allowed || r.Status == nil || !strings.Contains(r.Status.Message, test.refused) {
					t.Errorf("allowed %t, %+v, want %q", r.Allowed, r.Status, test.refused)
				}
			case !r.Allowed:
				t.Errorf("refused: %s", r.Status.Message)
			case test.patch == "" && len(r.Patch) > 0 || !strings.Contains(string(r.Patch), test.patch):
				t.Errorf("patch %s, want %q", r.Patch, test.patch)
			}
		})
	}
}

// What clusters send of pods that kubectl and their controllers make: the patch adds and changes nothing else, and
// another review of what it made wants no more.
func TestReviewsOfClusters(t *testing.T) {
	for name, test := range map[string]struct{ patch, without, refused string }{
		"applied":     {patch: `"--service=shell"`, without: "--port"}, // by kubectl; the account's token is a secret
		"job":         {patch: `"--service=report"`, without: "--port"},
		"daemonset":   {refused: "host's network"},
		"statefulset": {patch: `"--port=5432"`}, // dry run, with a sidecar of another webhook
	} {
		t.Run(name, func(t *testing.T) {
			text := readOf(t, name)
			r := ask(t, text, options())
			if test.refused != "" {
				if r.Allowed || !strings.Contains(r.Status.Message, test.refused) {
					t.Errorf("%+v, want it refused", r)
				}
				return
			}
			if !r.Allowed || !strings.Contains(string(r.Patch), test.patch) || test.without != "" &&
				strings.Contains(string(r.Patch), test.without) {
				t.Fatalf("allowed %t, patch %s", r.Allowed, r.Patch)
			}
			var was, is object
			for _, o := range []*object{&was, &is} {
				if err := json.Unmarshal(text, o); err != nil {
					t.Fatal(err)
				}
			}
			pod := is["request"].(object)["object"].(object)
			apply(t, pod, r.Patch)
			again, err := json.Marshal(is)
			if err != nil {
				t.Fatal(err)
			}
			if r := ask(t, again, options()); !r.Allowed || len(r.Patch) > 0 {
				t.Errorf("a second time: %s", r.Patch)
			}
			spec, before := pod["spec"].(object), was["request"].(object)["object"].(object)
			spec["initContainers"] = spec["initContainers"].([]any)[1:]
			if len(spec["initContainers"].([]any)) == 0 {
				delete(spec, "initContainers")
			}
			for _, marks := range []string{"annotations", "labels"} {
				m := pod["metadata"].(object)[marks].(object)
				if delete(m, Status); len(m) == 0 {
					delete(pod["metadata"].(object), marks)
				}
			}
			if !reflect.DeepEqual(pod, before) {
				t.Errorf("without what was added it is\n%v, was\n%v", pod, before)
			}
		})
	}
}

// What is no review is an error, not an answer.
func TestNoReview(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "{}", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"x"}}`} {
		if answer, err := Review([]byte(text), options()); err == nil {
			t.Errorf("%q is answered with %s", text, answer)
		}
	}
}

// Whatever comes: an answer is a review with the request's uid, and its patch fits the pod and is not wanted twice.
func FuzzReview(f *testing.F) {
	for _, name := range []string{"review", "applied", "job", "daemonset", "statefulset"} {
		f.Add(readOf(f, name))
	}
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","kind":{"kind":"Pod"},
"object":{"metadata":{"annotations":{}},"spec":{"containers":[{"name":"a"}]}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o := options()
		o.Default = true
		answer, err := Review(text, o)
		if err != nil {
			return
		}
		var in, out review
		if json.Unmarshal(text, &in) != nil || json.Unmarshal(answer, &out) != nil || out.Response.UID != in.Request.UID {
			t.Fatalf("%s is answered with %s", text, answer)
		}
		if patched, refusal := Said(answer); patched && refusal != "" || patched != (len(out.Response.Patch) > 0) {
			t.Fatal("it says both")
		}
		if len(out.Response.Patch) > 0 && !strings.Contains(string(out.Response.Patch), fmt.Sprintf("%q", injected)) {
			t.Fatalf("a patch without its mark: %s", out.Response.Patch)
		}
	})
}
