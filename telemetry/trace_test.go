package telemetry

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
)

const (
	anyTrace  = "0af7651916cd43dd8448eb211c80319c"
	anyParent = "b7ad6b7169203331"
)

func TestParseTraceparent(t *testing.T) {
	for header, want := range map[string]string{
		"00-" + anyTrace + "-" + anyParent + "-01":                           "sampled",
		"00-" + anyTrace + "-" + anyParent + "-00":                           "not",
		"00-" + anyTrace + "-" + anyParent + "-ff":                           "sampled",
		"01-" + anyTrace + "-" + anyParent + "-01-what-a-later-version-adds": "sampled",
		"00-" + anyTrace + "-" + anyParent + "-01-more":                      "",
		"ff-" + anyTrace + "-" + anyParent + "-01":                           "",
		"0x-" + anyTrace + "-" + anyParent + "-01":                           "",
		"00-00000000000000000000000000000000-" + anyParent + "-01":           "",
		"00-" + anyTrace + "-0000000000000000-01":                            "",
		"00-" + strings.ToUpper(anyTrace) + "-" + anyParent + "-01":          "",
		"00-" + anyTrace + "-" + anyParent:                                   "",
		"00-" + anyTrace + "' OR 1=1-" + anyParent + "-01":                   "",
		"": "",
	} {
		got, ok := ParseTraceparent(header)
		if ok != (want != "") || ok && (got.Trace.String() != anyTrace || got.Parent.String() != anyParent ||
			got.Sampled != (want == "sampled")) {
			t.Errorf("%q is %+v, %t", header, got, ok)
		}
		if !ok && got != (Traceparent{}) {
			t.Errorf("%q leaves %+v", header, got)
		}
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add("00-" + anyTrace + "-" + anyParent + "-01")
	f.Fuzz(func(t *testing.T, header string) {
		if p, ok := ParseTraceparent(header); ok &&
			!strings.Contains(header, "-"+p.Trace.String()+"-"+p.Parent.String()+"-") {
			t.Errorf("%q is %+v", header, p)
		}
	})
}

// taken are the requests that wait in a queue.
func taken(q *SpanQueue) (out [][]Span) {
	for len(q.C) > 0 {
		out = append(out, <-q.C)
	}
	return out
}

// TestWhichRequestsAreTraced: slow ones, and those whose callers ask for it, with all that was done for them.
func TestWhichRequestsAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		s, dropped := r.Stages("catalog", "kv"), r.Counter("dropped")
		q := NewSpanQueue(clock.Real{}, dropped)
		detach := r.Traces().Attach(q)
		run := func(header string, took time.Duration) *Request {
			one := r.Traces().Begin("catalog", "PUT", header)
			time.Sleep(took)
			s.Done(WithRequest(t.Context(), one), 0, took, &Spent{StageToken: took / 2})
			one.End("/v1/kv/", 200)
			one.End("/v1/kv/", 500) // once is enough
			return one
		}
		for _, c := range []struct {
			header string
			took   time.Duration
			sent   bool
		}{
			{"", time.Millisecond, false},
			{"", 10 * time.Millisecond, true},
			{"00-" + anyTrace + "-" + anyParent + "-00", time.Millisecond, false},
			{"00-" + anyTrace + "-" + anyParent + "-00", 10 * time.Millisecond, true},
			{"00-" + anyTrace + "-" + anyParent + "-01", time.Millisecond, true},
			{"nonsense", time.Millisecond, false},
		} {
			one := run(c.header, c.took)
			got := taken(q)
			if (len(got) == 1) != c.sent {
				t.Errorf("%+v: sent are %+v", c, got)
				continue
			}
			passed := PassedOn(WithRequest(t.Context(), one), c.header)
			if wantOwn := strings.HasSuffix(c.header, "-01"); wantOwn != (passed == "00-"+anyTrace+"-"+one.root.ID.String()+
				"-01") || !wantOwn && passed != c.header {
				t.Errorf("%+v: passed on is %q", c, passed)
			}
			if !c.sent {
				continue
			}
			root, part := got[0][0], got[0][1]
			if root.Name != "PUT /v1/kv/" || root.Status != 200 || root.Took != c.took || !root.Server ||
				part.Parent != root.ID || part.Trace != root.Trace ||
				part.Name != "catalog kv" || part.Spent[StageToken] != c.took/2 || part.Server || !part.Begin.Equal(root.Begin) {
				t.Errorf("%+v: sent is %+v", c, got[0])
			}
			if known := c.header != ""; known != (root.Trace.String() == anyTrace) ||
				known != (root.Parent.String() == anyParent) || root.Trace == (TraceID{}) {
				t.Errorf("%+v: trace %s, parent %s", c, root.Trace, root.Parent)
			}
			if slow := r.Slowest(); c.took > time.Millisecond && slow[len(slow)-1].Trace != root.Trace.String() &&
				slow[0].Trace != root.Trace.String() {
				t.Errorf("%+v: the ring has %+v", c, slow)
			}
		}
		s.Done(t.Context(), 0, time.Second, nil) // at no door
		if got := taken(q); len(got) != 1 || got[0][0].Server || got[0][0].Trace.String() != r.Slowest()[0].Trace {
			t.Errorf("an account of its own: %+v", got)
		}
		if dropped.Value() != 0 {
			t.Errorf("%d dropped", dropped.Value())
		}
		detach()
		if r.Traces().On() || r.Traces().Begin("catalog", "GET", "") != nil {
			t.Error("requests are taken up for nobody")
		}
	})
}

// TestTracesAreBounded: what comes faster than the rate, or than the exporter takes, is dropped and counted; nobody
// waits.
func TestTracesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		dropped := r.Counter("dropped")
		q := NewSpanQueue(clock.Real{}, dropped)
		defer r.Traces().Attach(q)()
		begun := time.Now()
		for range 1000 {
			r.Traces().Begin("catalog", "GET", "00-"+anyTrace+"-"+anyParent+"-01").End("/v1/kv/", 200)
		}
		if n := len(q.C); n != sampledBurst || dropped.Value() != uint64(1000-n) {
			t.Errorf("%d taken at once, %d dropped", n, dropped.Value())
		}
		s := r.Stages("catalog", "kv")
		for i := range 1000 {
			s.Done(t.Context(), 0, time.Duration(i+3)*time.Millisecond, nil)
		}
		if n := len(q.C); n != sampledBurst+slowBurst || dropped.Value() != uint64(2000-n) {
			t.Errorf("%d taken at once, %d dropped", n, dropped.Value())
		}
		if !time.Now().Equal(begun) {
			t.Error("somebody waited")
		}
		for range 2 * spansQueued {
			time.Sleep(time.Second / sampledRate)
			r.Traces().Begin("catalog", "GET", "00-"+anyTrace+"-"+anyParent+"-01").End("/v1/kv/", 200)
		}
		if n := len(q.C); n != spansQueued || dropped.Value() != uint64(2000+2*spansQueued-n) {
			t.Errorf("%d queued, %d dropped", n, dropped.Value())
		}
	})
}

// TestTracesThatGoNowhereCostNothing: without an exporter a request's door and its account allocate nothing.
func TestTracesThatGoNowhereCostNothing(t *testing.T) {
	r := New(Config{})
	s, ctx := r.Stages("catalog", "kv"), context.Background()
	s.Done(ctx, 0, time.Millisecond, nil)
	if n := testing.AllocsPerRun(1000, func() {
		one := r.Traces().Begin("catalog", "GET", "00-"+anyTrace+"-"+anyParent+"-01")
		s.Done(ctx, 0, time.Millisecond, nil)
		one.End("/v1/kv/", 200)
		if PassedOn(ctx, "") != "" || (*Registry)(nil).Traces().On() {
			t.Error("spans are made for nobody")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
