package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/k8s/kubetest"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/polltest"
)

const services = "/api/v1/namespaces/shop/services"

func put(s *kubetest.Server, name string, port int) {
	s.Put(services, kubetest.Object{"metadata": kubetest.Object{"name": name, "namespace": "shop"},
		"spec": kubetest.Object{"ports": []kubetest.Object{{"port": port}}}})
}

func mirror(t *testing.T, s *kubetest.Server) *Mirror[k8s.Service] {
	t.Helper()
	c, err := New(Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMirror[k8s.Service](MirrorConfig{Client: c, Path: "/api/v1/services",
		Retry: backoff.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		_ = m.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.Close()
	})
	return m
}

// shows waits until the mirror has these, as name:port.
func shows(t *testing.T, m *Mirror[k8s.Service], want string) {
	t.Helper()
	polltest.Until(t, func() bool {
		list, synced := m.Items()
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprintf("%s:%d", s.Metadata.Name, s.Spec.Ports[0].Port))
		}
		return synced && strings.Join(got, " ") == want
	}, "the mirror to have %s", want)
}

// A mirror follows changes, over pages, watches that end, and versions that are too old.
func TestMirror(t *testing.T) {
	s := kubetest.New(t)
	s.Page(2)
	for n := range 5 {
		put(s, fmt.Sprintf("s%d", n), 80)
	}
	m := mirror(t, s)
	shows(t, m, "s0:80 s1:80 s2:80 s3:80 s4:80")
	put(s, "s1", 81)
	s.Delete(services + "/s2")
	put(s, "s9", 90)
	shows(t, m, "s0:80 s1:81 s3:80 s4:80 s9:90")

	s.EndWatches() // the next watch goes on from what was told last
	put(s, "s0", 82)
	shows(t, m, "s0:82 s1:81 s3:80 s4:80 s9:90")
	if m.Lists.Load() != 1 {
		t.Errorf("%d lists for a watch that ended", m.Lists.Load())
	}

	s.Delete(services + "/s9")
	put(s, "s3", 83)
	s.Compact()
	s.EndWatches()
	shows(t, m, "s0:82 s1:81 s3:83 s4:80")
	polltest.Until(t, func() bool { return m.Lists.Load() >= 2 }, "a second list")
}

// While the server refuses, the mirror keeps what it had, and says that it never had anything where that is so.
func TestMirrorKeepsWhatItHad(t *testing.T) {
	s := kubetest.New(t)
	put(s, "a", 1)
	s.Refuse("/api", http.StatusForbidden)
	m := mirror(t, s)
	polltest.Until(t, func() bool { return m.Failures.Load() > 1 }, "failures")
	if _, synced := m.Items(); synced {
		t.Error("a refused list counts as an empty one")
	}
	s.Refuse("/api", 0)
	shows(t, m, "a:1")
	s.Refuse("/api", http.StatusServiceUnavailable)
	s.Compact()
	s.EndWatches()
	before := m.Failures.Load()
	polltest.Until(t, func() bool { return m.Failures.Load() > before+1 }, "failures")
	shows(t, m, "a:1")
}

// A bookmark moves the version on, so that a quiet watch is not too old after a compaction of what others did.
func TestBookmarks(t *testing.T) {
	s := kubetest.New(t)
	put(s, "a", 1)
	m := mirror(t, s)
	shows(t, m, "a:1")
	for n := range 3 {
		s.Put("/api/v1/namespaces/shop/pods", kubetest.Object{"metadata": kubetest.Object{"name": fmt.Sprint(n)}})
	}
	want := fmt.Sprintf("resourceVersion=%d&", s.Version())
	polltest.Until(t, func() bool {
		s.EndWatches()
		list := s.Asked()
		return strings.Contains(list[len(list)-1], want)
	}, "a watch from the bookmark")
}

// Answers are read as what they are.
func TestAnswers(t *testing.T) {
	s := kubetest.New(t)
	c, err := New(Config{Host: s.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	svc := k8s.Service{Metadata: k8s.Meta{Name: "db", Namespace: "shop"}, Spec: k8s.ServiceSpec{Type: k8s.ExternalName}}
	if err := c.Send(t.Context(), http.MethodPost, services, "", svc, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), http.MethodPost, services, "", svc, nil); !Is(err, http.StatusConflict) ||
		!strings.Contains(err.Error(), "exists already") {
		t.Errorf("made twice: %v", err)
	}
	var got k8s.Service
	if err := c.Get(t.Context(), services+"/db", &got); err != nil || got.Metadata.ResourceVersion == "" {
		t.Errorf("%+v, %v", got, err)
	}
	got.Metadata.ResourceVersion = "1"
	if err := c.Send(t.Context(), http.MethodPut, services+"/db", "", got, nil); !Is(err, http.StatusConflict) {
		t.Errorf("written over: %v", err)
	}
	if err := c.Get(t.Context(), services+"/none", &got); !Is(err, http.StatusNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := New(Config{Host: "kubernetes:6443"}); err == nil {
		t.Error("a host without its scheme is taken")
	}
}

// Whatever the stream says, reading ends, and tells only of events.
func FuzzEvents(f *testing.F) {
	f.Add(`{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n" + `{"type":"BOOKMARK","object":{}}`)
	f.Add(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`)
	f.Add(`{"type":"ADDED","object":`)
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		err := readEvents(strings.NewReader(text), "/x", func(e Event) error {
			if n++; e.Type == "ERROR" {
				t.Error("an error is told of as an event")
			}
			var o k8s.Object
			_ = k8s.Decode(e.Object, &o)
			return nil
		})
		if err == nil && strings.TrimSpace(text) != "" && n == 0 {
			t.Errorf("%q is read as nothing", text)
		}
	})
}
