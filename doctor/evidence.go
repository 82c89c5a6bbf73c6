package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/doctor/usual"
)

// Cluster is all that could be had at one moment.
type Cluster struct {
	At      time.Time  `json:"at"`
	Members []Evidence `json:"members"`
	// Silent are members that did not answer, or not in time.
	Silent []Silent `json:"silent,omitempty"`
}

// Silent is a member without evidence.
type Silent struct {
	Member string `json:"member"`
	Role   Role   `json:"role,omitempty"`
	Reason string `json:"reason"`
}

// NoWindow is the gap of a process whose first window has not ended: what it does not report is not known to be in
// order.
const NoWindow = "no window has ended yet: the process started a few seconds ago"

// Role is what a process is.
type Role string

// The roles.
const (
	RoleServer Role = "server"
	RoleAgent  Role = "agent"
)

// Identity is which process evidence is of.
type Identity struct {
	Member  string `json:"member"`
	Role    Role   `json:"role"`
	Version string `json:"version,omitempty"`
	// Cluster tells members of several clusters apart whose evidence is judged together: those of one say the same.
	Cluster string `json:"cluster,omitempty"`
	// Addresses are those at which others reach it: a storage or a peer is recognised by them.
	Addresses []string `json:"addresses,omitempty"`
}

// Evidence is what one process knows. Everything in it is bounded by its gatherer.
type Evidence struct {
	Identity
	At time.Time `json:"at"`
	// Began is when the process started.
	Began time.Time `json:"began"`
	// Window is how long the newest window of every series is.
	Window time.Duration `json:"window_ns"`
	Series []Series      `json:"series"`
	Facts  []Fact        `json:"facts,omitempty"`
	Stacks []Stack       `json:"stacks,omitempty"`
	Slow   []Slow        `json:"slow,omitempty"`
	Floors *Floors       `json:"floors,omitempty"`
	// Depends are the systems that its planes wait for.
	Depends []Dependency `json:"depends,omitempty"`
	// Past are findings that its own process alone led to, the newest first.
	Past []Past `json:"past,omitempty"`
	// Gaps says what could not be read, and why.
	Gaps []string `json:"gaps,omitempty"`
}

// Past is a finding with its time. Until is zero while it lasts.
type Past struct {
	Code    string    `json:"code"`
	Title   string    `json:"title"`
	Culprit string    `json:"culprit"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until,omitzero"`
}

// Kind is what a series is.
type Kind string

// The kinds.
const (
	Counter Kind = "counter" // Now.Rate and Now.Sum
	Gauge   Kind = "gauge"   // Now.Value, Now.Slope
	Timing  Kind = "timing"  // Now.Count, Mean, P50, P99, Max
)

// Series is one metric of one process.
type Series struct {
	Name   string  `json:"name"`
	Labels []Label `json:"labels,omitempty"`
	Kind   Kind    `json:"kind"`
	Now    Stat    `json:"now"`
	// Usual is what was learned; nil while too little was seen.
	Usual *usual.Level `json:"usual,omitempty"`
	// Since is when the series left what is usual for it, or its limit, for the last time; zero when it did not.
	Since time.Time `json:"since,omitzero"`
}

// Label is a name and its value.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Stat is a window of a series. Which fields hold depends on the kind.
type Stat struct {
	Count float64 `json:"count,omitempty"`
	Rate  float64 `json:"rate,omitempty"`
	Sum   float64 `json:"sum,omitempty"`
	Mean  float64 `json:"mean,omitempty"`
	P50   float64 `json:"p50,omitempty"`
	P99   float64 `json:"p99,omitempty"`
	Max   float64 `json:"max,omitempty"`
	Value float64 `json:"value,omitempty"`
	// Slope is a gauge's change per second over the longest history kept, or over its newer half where that is less.
	Slope float64 `json:"slope,omitempty"`
}

// Label returns the value of a label, "" without it.
func (s *Series) Label(name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Key is the name with its labels, unique in a process.
func (s *Series) Key() string {
	if len(s.Labels) == 0 {
		return s.Name
	}
	var b strings.Builder
	b.WriteString(s.Name)
	for i, l := range s.Labels {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(l.Name + "=" + l.Value)
	}
	b.WriteByte('}')
	return b.String()
}

// Fact is an event that an owner of background work reported.
type Fact struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// Fields are the fact's own, by lower-case names.
	Fields map[string]string `json:"fields,omitempty"`
}

// StackKind is what a stack was sampled for.
type StackKind string

// The kinds of stacks. Waiting ones are goroutines of a commit, a request or a loop, seen again and again
// at one place, in a system call or in the network, where no profile of blocking sees them.
const (
	StackCPU     StackKind = "cpu"
	StackBlocked StackKind = "blocked"
	StackMutex   StackKind = "mutex"
	StackWaiting StackKind = "waiting"
	StackHeap    StackKind = "heap"
)

// Stack is what samples that have their place and their purpose in common add up to.
type Stack struct {
	Kind StackKind `json:"kind"`
	// Plane and Stage are what the goroutine is for; Package is where it spends, the innermost one of ours or of a
	// library that is not the runtime's.
	Plane   string `json:"plane,omitempty"`
	Stage   string `json:"stage,omitempty"`
	Package string `json:"package"`
	// Function is the innermost one in Package.
	Function string `json:"function,omitempty"`
	// Share is its part of all samples of its kind and, for waiting ones, of its stage; 0 to 1.
	Share float64 `json:"share"`
	// Seconds is CPU, blocked or waited time per second of wall time.
	Seconds float64 `json:"seconds,omitempty"`
}

// Slow is one of the slowest requests of late.
type Slow struct {
	Plane  string        `json:"plane"`
	Kind   string        `json:"kind"`
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took_ns"`
	Trace  string        `json:"trace,omitempty"`
	Stages []SlowStage   `json:"stages,omitempty"`
}

// SlowStage is a part of a slow request.
type SlowStage struct {
	Stage string        `json:"stage"`
	Took  time.Duration `json:"took_ns"`
}

// Floors are what the machine can do at best, measured once.
type Floors struct {
	FsyncMillis     float64 `json:"fsync_ms,omitempty"`
	LoopbackMillis  float64 `json:"loopback_ms,omitempty"`
	WakeMillis      float64 `json:"wake_ms,omitempty"`
	MeasuredSeconds float64 `json:"measured_seconds,omitempty"`
}

// Dependency is a system that a plane stores in or waits for.
type Dependency struct {
	Plane string `json:"plane"`
	// Kind is raft, postgresql, consul, s3, gcs or file.
	Kind string `json:"kind"`
	// Addresses are where it is reached, "" for one of its own.
	Addresses []string `json:"addresses,omitempty"`
}

// view is evidence that is indexed once for all rules.
type view struct {
	*Evidence
	byName  map[string][]*Series
	cluster *Cluster
}

func newView(e *Evidence, c *Cluster) *view {
	v := &view{Evidence: e, cluster: c, byName: make(map[string][]*Series, len(e.Series))}
	for i := range e.Series {
		s := &e.Series[i]
		v.byName[s.Name] = append(v.byName[s.Name], s)
	}
	for _, all := range v.byName {
		slices.SortFunc(all, func(a, b *Series) int { return cmp.Compare(a.Key(), b.Key()) })
	}
	return v
}

// all returns the series of a name whose labels are as given, as name and value in turn.
func (v *view) all(name string, labels ...string) []*Series {
	all := v.byName[name]
	if len(labels) == 0 {
		return all
	}
	var out []*Series
	for _, s := range all {
		fits := true
		for i := 0; i+1 < len(labels); i += 2 {
			fits = fits && s.Label(labels[i]) == labels[i+1]
		}
		if fits {
			out = append(out, s)
		}
	}
	return out
}

// one returns the first such series, nil when there is none.
func (v *view) one(name string, labels ...string) *Series {
	if all := v.all(name, labels...); len(all) > 0 {
		return all[0]
	}
	return nil
}

// value is a gauge's value and whether there is one.
func (v *view) value(name string, labels ...string) (float64, bool) {
	if s := v.one(name, labels...); s != nil {
		return s.Now.Value, true
	}
	return 0, false
}

// ago is the moment that lies that many milliseconds before the evidence: when what has an age began.
func (v *view) ago(ms float64) time.Time {
	return v.At.Add(-time.Duration(ms * float64(time.Millisecond)))
}

// rate is a counter's rate per second, 0 without the counter.
func (v *view) rate(name string, labels ...string) (sum float64) {
	for _, s := range v.all(name, labels...) {
		sum += s.Now.Rate
	}
	return sum
}
