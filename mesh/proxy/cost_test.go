package proxy

import (
	"fmt"
	"runtime"
	"testing"

	"corbel.dev/corbel/mesh"
)

const hostProxies = 18 // of one host, as in the published fleet

// hostOf makes the proxies of one host: services of their own, one common upstream.
func hostOf(t testing.TB, w *world, n int) []*Proxy {
	cache := NewCache()
	values := map[string]Change{} // a host decodes each value once
	list := make([]*Proxy, n)
	for i := range list {
		r := sidecar(t, fmt.Sprintf(`{"DestinationServiceName": "web-%d", "LocalServicePort": %d, "Upstreams": [{`+
			`"DestinationName": "api", "LocalBindPort": %d}]}`, i, 8000+i, 9000+i))
		r.Port = 21000 + i
		p := New(r, "dc1", cache)
		w.share(p, values)
		list[i] = p
	}
	return list
}

// TestStateOfAProxyIsSmall: hundreds of thousands of proxies live on one machine in the benchmark of propagation.
func TestStateOfAProxyIsSmall(t *testing.T) {
	w := newWorld(t)
	w.instances["endpoints/dc1/api/"] = []mesh.Endpoint{{Address: "10.0.0.1", Port: 21000, Weight: 1}}
	hostOf(t, w, 2) // what is made once for the process
	const hosts = 20
	keep := make([][]*Proxy, hosts)
	heap := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range keep {
		keep[i] = hostOf(t, w, hostProxies)
	}
	all := (heap() - before) / hosts / hostProxies
	listeners := 0
	for _, p := range keep[0] {
		for _, r := range p.Set(mesh.TypeListener).All() {
			listeners += len(r.Body)
		}
		listeners += len(p.Set(mesh.TypeCluster).Get("local_app").Body)
	}
	t.Logf("%d bytes a proxy, %d of them bodies of its own listeners and local cluster", all, listeners/hostProxies)
	// 4.9 kB when this was written, with all that only this proxy of its host uses: 1.1 kB of bodies, and its service's
	// value and rules.
	if all > 8<<10 {
		t.Errorf("%d bytes a proxy, want at most 8 KiB", all)
	}
	runtime.KeepAlive(keep)
}

// TestProxiesShareTheRules: those that no intention names are one resource for all proxies of a host.
func TestProxiesShareTheRules(t *testing.T) {
	w := newWorld(t)
	list := hostOf(t, w, hostProxies)
	w.put(`{"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "shop", "Action": "allow"}]}`)
	change := w.change("rules/")
	want := change.Value.(*mesh.RulesValue).Network
	for i, p := range list {
		if d := p.Step(change); d.Touched != mesh.Types(0).With(mesh.TypeExtension) {
			t.Fatalf("proxy %d: touched %b", i, d.Touched)
		}
		if got := p.Set(mesh.TypeExtension).All(); len(got) != 1 || got[0] != want {
			t.Fatalf("proxy %d has %v", i, got)
		}
	}
}

// TestAStepOfEndpointsAllocatesLittle: it happens for each proxy of a host at each change of what it calls.
func TestAStepOfEndpointsAllocatesLittle(t *testing.T) {
	_, p, changes := endpointSteps(t)
	i := 1
	if n := testing.AllocsPerRun(100, func() {
		i++
		if d := p.Step(changes[i%2]); !d.Touched.Has(mesh.TypeEndpoints) {
			t.Fatal("nothing was touched")
		}
	}); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

func endpointSteps(t testing.TB) (*world, *Proxy, [2]Change) {
	w := newWorld(t)
	const subject = "endpoints/dc1/api/"
	p := hostOf(t, w, 1)[0]
	var changes [2]Change
	for i := range changes {
		w.instances[subject] = []mesh.Endpoint{{Address: fmt.Sprintf("10.0.0.%d", i+1), Port: 21000, Weight: 1}}
		changes[i] = w.change(subject)
		p.Step(changes[i])
	}
	return w, p, changes
}

func BenchmarkStepEndpoints(b *testing.B) {
	_, p, changes := endpointSteps(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p.Step(changes[i%2])
	}
}

func BenchmarkStepRules(b *testing.B) {
	w := newWorld(b)
	p := hostOf(b, w, 1)[0]
	var changes [2]Change
	for i := range changes {
		w.put(fmt.Sprintf(`{"Kind": "service-intentions", "Name": "web-0", "Sources": [{"Name": "s%d", "Action": "allow"}]}`,
			i))
		changes[i] = w.change("rules/web-0")
	}
	p.Step(w.change("service/web-0"))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p.Step(changes[i%2])
	}
}

// BenchmarkBringUp is a proxy from its registration to all its resources.
func BenchmarkBringUp(b *testing.B) {
	w := newWorld(b)
	first := hostOf(b, w, 1)[0]
	values := map[string]Change{}
	for _, s := range first.Follows() {
		values[s] = w.change(s)
	}
	cache := NewCache()
	r := first.Registration()
	b.ReportAllocs()
	for b.Loop() {
		p := New(r, "dc1", cache)
		for len(p.Missing()) > 0 {
			for _, s := range p.Missing() {
				p.Step(values[s])
			}
		}
	}
}
