// Package corbelapi is Corbel's own API: what none of the wire contracts has a word for.
//
//	GET /v1/doctor            the report about the cluster: asked of all servers in parallel;
//	                          ?local for this process alone
//	GET /v1/doctor/evidence   what this process knows, and what agents reported lately;
//	                          ?cluster for what all servers know
//	GET /v1/doctor/profile    the newest profile, ?kind=cpu, blocked, mutex, waiting or heap, or with
//	                          ?ago=1h the newest of those that old (the oldest, when none is);
//	                          for pprof, ?format=svg as a flame graph, or ?format=tree as a tree in JSON
//
// All need operator:read. Answers are JSON; errors are text, as in the catalog's contract. The report is there within
// GatherTimeout and a little, whatever state the members are in: who has not answered by then is named in it, and no
// question to it goes on.
package corbelapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/doctor"
)

// GatherTimeout is how long a member may take to give its evidence.
const GatherTimeout = 2 * time.Second

// maxMembers bounds those that are asked, side by side: servers, which are few.
const maxMembers = 64

// Member is another process to ask.
type Member struct {
	Name string
	Role doctor.Role
}

// Config of a Doctor. All functions are needed.
type Config struct {
	// Evidence is this process's own, then what agents told it.
	Evidence func() []doctor.Evidence
	// Others are the servers besides this process.
	Others func() []Member
	// Ask fetches a member's evidence for the caller of a request. It returns once its context has ended, also where the
	// member is frozen: a report waits for it.
	Ask func(ctx context.Context, name string, r *http.Request) ([]doctor.Evidence, error)
	// Profile writes the newest profile of a kind; false when there is none.
	Profile func(w io.Writer, kind, format string, ago time.Duration) (bool, error)
	// Allow says whether the caller may see it.
	Allow func(*http.Request) bool
}

// Doctor serves its paths. It is safe for concurrent use.
type Doctor struct {
	cfg Config
	// turns bounds gatherings at once: each asks all servers.
	turns chan struct{}
}

// NewDoctor makes a Doctor.
func NewDoctor(cfg Config) *Doctor {
	return &Doctor{cfg: cfg, turns: make(chan struct{}, 4)}
}

// Serves reports whether a path is the Doctor's.
func Serves(path string) bool {
	return path == "/v1/doctor" || path == "/v1/doctor/evidence" || path == "/v1/doctor/profile"
}

// ServeHTTP implements http.Handler.
func (d *Doctor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method "+r.Method+" not allowed", http.StatusMethodNotAllowed)
		return
	}
	if !d.cfg.Allow(r) {
		http.Error(w, "Permission denied: the doctor needs operator:read", http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	if r.URL.Path == "/v1/doctor/profile" {
		d.profile(w, query.Get("kind"), query.Get("format"), query.Get("ago"))
		return
	}
	evidence := r.URL.Path == "/v1/doctor/evidence"
	if evidence && !query.Has("cluster") {
		answer(w, d.cfg.Evidence())
		return
	}
	select {
	case d.turns <- struct{}{}:
		defer func() { <-d.turns }()
	default:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "four reports are being made already", http.StatusTooManyRequests)
		return
	}
	cluster := doctor.Cluster{At: time.Now(), Members: d.cfg.Evidence()}
	if evidence || !query.Has("local") {
		d.gather(r, &cluster)
	}
	if evidence {
		answer(w, &cluster)
		return
	}
	report := doctor.Judge(&cluster)
	answer(w, &report)
}

// kinds are the profiles that there are.
var kinds = []string{string(doctor.StackCPU), string(doctor.StackBlocked), string(doctor.StackMutex),
	string(doctor.StackWaiting), string(doctor.StackHeap)}

func (d *Doctor) profile(w http.ResponseWriter, kind, format, ago string) {
	if kind == "" {
		kind = string(doctor.StackCPU)
	}
	if !slices.Contains(kinds, kind) {
		http.Error(w, "kind: "+strconv.Quote(kind)+" is none of "+strings.Join(kinds, ", "), http.StatusBadRequest)
		return
	}
	if format != "" && format != "pprof" && format != "svg" && format != "tree" {
		http.Error(w, "format: "+strconv.Quote(format)+" is none of pprof, svg, tree", http.StatusBadRequest)
		return
	}
	age := time.Duration(0)
	if ago != "" {
		var err error
		if age, err = time.ParseDuration(ago); err != nil || age < 0 {
			http.Error(w, "ago: "+strconv.Quote(ago)+" is no time such as 1h", http.StatusBadRequest)
			return
		}
	}
	var b bytes.Buffer
	found, err := d.cfg.Profile(&b, kind, format, age)
	switch {
	case err != nil:
		http.Error(w, "the profile cannot be drawn: "+err.Error(), http.StatusInternalServerError)
		return
	case !found:
		http.Error(w, "no profile of "+kind+" was taken yet: CPU, blocking and memory come each minute, waiting when "+
			"something is slow", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if format == "tree" {
		w.Header().Set("Content-Type", "application/json")
	}
	if format == "svg" {
		w.Header().Set("Content-Type", "image/svg+xml")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	}
	_, _ = w.Write(b.Bytes())
}

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "evidence could not be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b)
}

// gather asks the other servers, all at once, and adds what they say, or that they do not. All questions have the same
// end, GatherTimeout from now, and are waited for: none is left behind.
func (d *Doctor) gather(r *http.Request, cluster *doctor.Cluster) {
	ctx, cancel := context.WithTimeout(r.Context(), GatherTimeout)
	defer cancel()
	others := d.cfg.Others()
	others = others[:min(len(others), maxMembers)]
	evidence, failed := make([][]doctor.Evidence, len(others)), make([]error, len(others))
	var asking sync.WaitGroup
	for i, m := range others {
		asking.Go(func() { evidence[i], failed[i] = d.cfg.Ask(ctx, m.Name, r) })
	}
	asking.Wait()
	for i, m := range others {
		if err := failed[i]; err != nil {
			cluster.Silent = append(cluster.Silent, doctor.Silent{Member: m.Name, Role: m.Role, Reason: reason(err)})
			continue
		}
		cluster.Members = append(cluster.Members, evidence[i]...)
	}
	cluster.Members = newest(cluster.Members)
}

// reason is why a member did not answer, short enough for a line.
func reason(err error) string {
	text := err.Error()
	if strings.Contains(text, context.DeadlineExceeded.Error()) {
		return "no answer within " + GatherTimeout.String()
	}
	if len(text) > 200 {
		text = text[:200]
	}
	return text
}

// newest keeps one evidence of each member: an agent may have told several servers.
func newest(all []doctor.Evidence) []doctor.Evidence {
	best := map[string]int{}
	for i := range all {
		if j, ok := best[all[i].Member]; !ok || all[i].At.After(all[j].At) {
			best[all[i].Member] = i
		}
	}
	var out []doctor.Evidence
	for i := range all {
		if best[all[i].Member] == i {
			out = append(out, all[i])
		}
	}
	slices.SortStableFunc(out, func(a, b doctor.Evidence) int { return strings.Compare(a.Member, b.Member) })
	return out
}
