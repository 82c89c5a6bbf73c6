package corbelapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/doctor"
)

func get(t *testing.T, d *Doctor, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func report(t *testing.T, w *httptest.ResponseRecorder) (r doctor.Report) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGather: members that answer are judged together, those that refuse or hang are named, and nobody waits longer
// than GatherTimeout for them.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		faulty := doctor.Evidence{Identity: doctor.Identity{Member: "web-7", Role: doctor.RoleAgent},
			At: at, Window: 10 * time.Second,
			Series: []doctor.Series{{Name: "xds.nacks", Kind: doctor.Counter, Now: doctor.Stat{Sum: 3}}}}
		older := faulty
		older.At = at.Add(-time.Minute)
		d := NewDoctor(Config{
			Evidence: func() []doctor.Evidence {
				return []doctor.Evidence{{Identity: doctor.Identity{Member: "s1", Role: doctor.RoleServer}}, older}
			},
			Others: func() []Member {
				return []Member{{"s2", doctor.RoleServer}, {"s3", doctor.RoleServer}, {"s4", doctor.RoleServer}}
			},
			Ask: func(ctx context.Context, name string, _ *http.Request) ([]doctor.Evidence, error) {
				switch name {
				case "s2":
					return []doctor.Evidence{{Identity: doctor.Identity{Member: "s2", Role: doctor.RoleServer}}, faulty}, nil
				case "s3":
					return nil, errors.New("connection refused")
				}
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Allow: func(*http.Request) bool { return true },
		})
		r := report(t, get(t, d, "GET", "/v1/doctor"))
		if took := time.Since(at); took > GatherTimeout {
			t.Errorf("it took %s", took)
		}
		if r.Asked != 3 || len(r.Silent) != 2 || r.Silent[0].Reason != "connection refused" ||
			r.Silent[1].Reason != "no answer within 2s" {
			t.Errorf("asked %d, silent %+v", r.Asked, r.Silent)
		}
		codes := map[string]int{}
		for _, f := range r.Findings {
			codes[f.Code]++
		}
		if codes["member-silent"] != 2 || codes["config-refused"] != 1 {
			t.Errorf("found %v", codes)
		}
		if r := report(t, get(t, d, "GET", "/v1/doctor?local")); r.Asked != 2 || len(r.Silent) != 0 {
			t.Errorf("for itself it asked %d members", r.Asked)
		}
	})
}

// TestGatherEnds: however many members are frozen, all are asked side by side, none with a later end than
// GatherTimeout, the report is there by then, and no question outlives it. So it is with each report that follows, and
// for whoever goes away earlier.
func TestGatherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frozen = 40
		var running, together, asked atomic.Int64
		var began time.Time
		d := NewDoctor(Config{
			Evidence: func() []doctor.Evidence {
				return []doctor.Evidence{{Identity: doctor.Identity{Member: "s1", Role: doctor.RoleServer}}}
			},
			Others: func() (all []Member) {
				for n := range frozen {
					all = append(all, Member{fmt.Sprintf("frozen-%02d", n), doctor.RoleServer})
				}
				return append(all, Member{"s2", doctor.RoleServer})
			},
			Ask: func(ctx context.Context, name string, _ *http.Request) ([]doctor.Evidence, error) {
				asked.Add(1)
				if end, ok := ctx.Deadline(); !ok || end.After(began.Add(GatherTimeout)) {
					t.Errorf("%s is asked with the end %s, %v: want %s", name, end, ok, began.Add(GatherTimeout))
				}
				if name == "s2" {
					return []doctor.Evidence{{Identity: doctor.Identity{Member: "s2", Role: doctor.RoleServer}}}, nil
				}
				if running.Add(1) == frozen {
					together.Add(1)
				}
				defer running.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Allow: func(*http.Request) bool { return true },
		})
		for n := range 6 {
			began = time.Now()
			r := report(t, get(t, d, "GET", "/v1/doctor"))
			if r.Asked != 2 || len(r.Silent) != frozen || r.Silent[0].Reason != "no answer within 2s" {
				t.Errorf("report %d: asked %d, silent %+v", n, r.Asked, r.Silent)
			}
			if took := time.Since(began); took != GatherTimeout {
				t.Errorf("report %d took %s of the bubble's time", n, took)
			}
			if left := running.Load(); left != 0 {
				t.Errorf("report %d leaves %d questions to nobody", n, left)
			}
		}
		if n := asked.Load(); n != 6*(frozen+1) || together.Load() != 6 {
			t.Errorf("%d questions, %d times all at once", n, together.Load())
		}
		began = time.Now()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/v1/doctor", nil))
		if took := time.Since(began); took != time.Second || running.Load() != 0 {
			t.Errorf("for somebody who left after a second it went on for %s, with %d questions", took, running.Load())
		}
	})
}

func TestRefusals(t *testing.T) {
	allowed := false
	d := NewDoctor(Config{Evidence: func() []doctor.Evidence { return []doctor.Evidence{} },
		Others: func() []Member { return nil }, Allow: func(*http.Request) bool { return allowed }})
	for _, path := range []string{"/v1/doctor", "/v1/doctor/evidence", "/v1/doctor/profile"} {
		if !Serves(path) {
			t.Errorf("%s is nobody's", path)
		}
		if w := get(t, d, "GET", path); w.Code != http.StatusForbidden {
			t.Errorf("%s without a right: %d", path, w.Code)
		}
		if w := get(t, d, "PUT", path); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("PUT %s: %d", path, w.Code)
		}
	}
	allowed = true
	for range cap(d.turns) {
		d.turns <- struct{}{}
	}
	if w := get(t, d, "GET", "/v1/doctor"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("a fifth report at once: %d", w.Code)
	}
	if w := get(t, d, "GET", "/v1/doctor/evidence"); w.Code != http.StatusOK {
		t.Errorf("evidence meanwhile: %d", w.Code)
	}
}

func TestProfiles(t *testing.T) {
	d := NewDoctor(Config{Allow: func(*http.Request) bool { return true },
		Profile: func(w io.Writer, kind, format string, ago time.Duration) (bool, error) {
			_, err := fmt.Fprint(w, kind, format, ago)
			return kind != "waiting", err
		}})
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"?kind=heap": {200, "heap"}, "": {200, "cpu"}, "?kind=mutex&format=svg": {200, "mutexsvg"},
		"?kind=mutex&format=tree": {200, "mutextree"}, "?format=tree&ago=1h": {200, "cputree1h0m0s"},
		"?ago=yesterday": {400, "ago: "}, "?ago=-1h": {400, "ago: "},
		"?kind=waiting": {404, "no profile of waiting"}, "?kind=x": {400, "none of cpu"},
		"?format=png": {400, "none of pprof, svg, tree"},
	} {
		if w := get(t, d, "GET", "/v1/doctor/profile"+path); w.Code != want.code ||
			!strings.Contains(w.Body.String(), want.body) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
