//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admission/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/k8s/inject"
	"corbel.dev/corbel/k8s/kubeapi"
	"corbel.dev/corbel/k8s/kubetest"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/polltest"
)

const services = "/api/v1/namespaces/shop/services"

func put(s *kubetest.Server, name string, port int) {
	s.Put(services, kubetest.Object{"kind": "Service", "apiVersion": "v1",
		"metadata": kubetest.Object{"name": name, "namespace": "shop"},
		"spec":     kubetest.Object{"ports": []kubetest.Object{{"port": port}}}})
}

// ours mirrors the services and tells them as name:port.
func ours(t *testing.T, s *kubetest.Server) func() string {
	c, err := kubeapi.New(kubeapi.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := kubeapi.NewMirror[k8s.Service](kubeapi.MirrorConfig{Client: c, Path: "/api/v1/services",
		Retry: backoff.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}})
	run(t, func(ctx context.Context) { _ = m.Run(ctx) })
	t.Cleanup(c.Close)
	return func() string {
		list, synced := m.Items()
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprintf("%s:%d", s.Metadata.Name, s.Spec.Ports[0].Port))
		}
		return fmt.Sprint(synced, got)
	}
}

// theirs is the same by client-go's reflector.
func theirs(t *testing.T, s *kubetest.Server) func() string {
	c, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	all := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"})
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	r := cache.NewReflector(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, store, 0)
	run(t, r.RunWithContext)
	return func() string {
		var got []string
		for _, o := range store.List() {
			u := o.(*unstructured.Unstructured)
			ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
			got = append(got, fmt.Sprintf("%s:%v", u.GetName(), ports[0].(map[string]any)["port"]))
		}
		slices.Sort(got)
		return fmt.Sprint(r.LastSyncResourceVersion() != "", got)
	}
}

// run runs f until the test ends.
func run(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// Whatever an API server does, our mirror and client-go's reflector come to have the same.
func TestMirrorAsClientGo(t *testing.T) {
	s := kubetest.New(t)
	s.Page(2)
	for n := range 5 {
		put(s, fmt.Sprintf("s%d", n), 80)
	}
	a, b := ours(t, s), theirs(t, s)
	for _, step := range []struct {
		name, want string
		do         func()
	}{
		{"a list of three pages", "s0:80 s1:80 s2:80 s3:80 s4:80", func() {}},
		{"changes", "s0:80 s1:81 s3:80 s4:80 s9:90", func() {
			put(s, "s1", 81)
			s.Delete(services + "/s2")
			put(s, "s9", 90)
		}},
		{"a watch that ends", "s0:82 s1:81 s3:80 s4:80 s9:90", func() {
			s.EndWatches()
			put(s, "s0", 82)
		}},
		{"a compaction while nobody watches", "s0:82 s1:83 s3:80 s4:80", func() {
			s.Refuse("/api/v1/services", 503)
			s.EndWatches()
			s.Delete(services + "/s9")
			put(s, "s1", 83)
			s.Compact()
			s.Refuse("/api/v1/services", 0)
		}},
		{"nothing is left", "", func() {
			for _, name := range []string{"s0", "s1", "s3", "s4"} {
				s.Delete(services + "/" + name)
			}
		}},
	} {
		step.do()
		want := "true [" + step.want + "]"
		polltest.Until(t, func() bool { return a() == want && b() == want }, "%s: %s; ours %s, client-go's %s", step.name,
			want, lazy(a), lazy(b))
	}
}

// lazy is a text when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }

// The answer to a review is one that the API server's own types take, and its patch has a container that is one.
func TestReviewAsAPIServer(t *testing.T) {
	text, err := os.ReadFile("../../k8s/inject/testdata/review.json")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := inject.Review(text, &inject.Options{Image: "corbel:1", Agent: "$(HOST_IP):8500"})
	if err != nil {
		t.Fatal(err)
	}
	var asked, got admission.AdmissionReview
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatal(err)
	}
	strict(t, answer, &got)
	if got.Kind != "AdmissionReview" || got.APIVersion != admission.SchemeGroupVersion.String() || got.Response == nil ||
		!got.Response.Allowed || got.Response.UID != asked.Request.UID || got.Response.PatchType == nil ||
		*got.Response.PatchType != admission.PatchTypeJSONPatch {
		t.Fatalf("%s", answer)
	}
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	strict(t, got.Response.Patch, &ops)
	containers := 0
	for _, op := range ops {
		if !strings.HasPrefix(op.Path, "/spec/initContainers") && !strings.HasPrefix(op.Path, "/spec/containers") {
			continue
		}
		containers++
		var list []core.Container
		if op.Value[0] != '[' {
			op.Value = slices.Concat([]byte("["), op.Value, []byte("]"))
		}
		strict(t, op.Value, &list)
		if c := list[0]; c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways ||
			c.Image != "corbel:1" {
			t.Errorf("%s: %+v", op.Path, c)
		}
	}
	if containers != 1 {
		t.Errorf("%d containers in %s", containers, got.Response.Patch)
	}
}

// strict refuses fields that a type does not have.
func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}
