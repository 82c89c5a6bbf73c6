package profile

import (
	"cmp"
	"slices"
	"strings"

	"corbel.dev/corbel/doctor"
	"github.com/google/pprof/profile"
)

// most is how many stacks of a kind are told.
const most = 8

// own is this package, which is always at work when it looks.
const own = "corbel.dev/corbel/doctor/profile"

// purposes say what a goroutine is for, by a function that is on its stack: the outermost that fits decides. The
// plane "" is that of the group or request, which a stack does not tell.
var purposes = []struct{ function, plane, stage string }{
	{"github.com/hashicorp/raft.(*Raft).runFSM", "", "apply"},
	{"github.com/hashicorp/raft.(*Raft).leaderLoop", "", "commit"},
	{"github.com/hashicorp/raft.(*Raft).runLeader", "", "commit"},
	{"github.com/hashicorp/raft.(*Raft).", "", "commit"},
	{"corbel.dev/corbel/core/group.", "", "commit"},
	{"corbel.dev/corbel/secrets/", "secrets", ""},
	{"corbel.dev/corbel/api/vaultapi.", "secrets", "request"},
	{"corbel.dev/corbel/monitor/pipeline.", "monitor", "handler"},
	{"corbel.dev/corbel/monitor/", "monitor", ""},
	{"corbel.dev/corbel/api/sensuapi.", "monitor", "request"},
	{"corbel.dev/corbel/api/xds", "mesh", "request"},
	{"corbel.dev/corbel/mesh/", "mesh", ""},
	{"corbel.dev/corbel/api/consulapi.", "catalog", "request"},
	{"corbel.dev/corbel/api/dnsapi.", "catalog", "request"},
	{"corbel.dev/corbel/catalog", "catalog", ""},
}

// Summarize adds up a profile's samples by what they are for and where they spend.
func Summarize(kind doctor.StackKind, p *profile.Profile) []doctor.Stack {
	value := len(p.SampleType) - 1 // time or bytes; the first is a count
	if kind == doctor.StackWaiting {
		value = 0
	}
	if value < 0 {
		return nil
	}
	type where struct{ plane, stage, pkg, function string }
	sums := map[where]int64{}
	stage := map[[2]string]int64{}
	var total int64
	for _, s := range p.Sample {
		pkg, function := place(s)
		if pkg == "" || pkg == own || (kind != doctor.StackCPU && kind != doctor.StackHeap && idle(s)) {
			continue
		}
		plane, st := purpose(s)
		sums[where{plane, st, pkg, function}] += s.Value[value]
		stage[[2]string{plane, st}] += s.Value[value]
		total += s.Value[value]
	}
	out := make([]doctor.Stack, 0, len(sums))
	for w, v := range sums {
		of := total
		if kind == doctor.StackWaiting {
			of = stage[[2]string{w.plane, w.stage}]
		}
		st := doctor.Stack{Kind: kind, Plane: w.plane, Stage: w.stage, Package: w.pkg, Function: w.function,
			Share: float64(v) / float64(max(of, 1))}
		if p.DurationNanos > 0 && (kind == doctor.StackMutex || kind == doctor.StackBlocked || kind == doctor.StackCPU) {
			st.Seconds = float64(v) / float64(p.DurationNanos)
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b doctor.Stack) int {
		return cmp.Or(-cmp.Compare(weigh(&a), weigh(&b)), cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Function, b.Function), cmp.Compare(a.Plane+a.Stage, b.Plane+b.Stage))
	})
	return out[:min(len(out), most)]
}

// weigh puts what has a purpose before what has none: the rest of the program waits for work most of the time.
func weigh(s *doctor.Stack) float64 {
	if s.Kind == doctor.StackWaiting && s.Plane == "" && s.Stage == "" {
		return s.Share / 100
	}
	return s.Share
}

// place is the innermost function of ours or of a library that is not the runtime's.
func place(s *profile.Sample) (pkg, function string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			pkg, function = split(line.Function.Name)
			if !beneath(pkg) {
				return pkg, function
			}
		}
	}
	return pkg, function
}

// beneath reports whether a package is machinery that everything stands on.
func beneath(pkg string) bool {
	switch pkg {
	case "runtime", "sync", "syscall", "time", "os", "net", "io", "bufio", "context", "reflect", "bytes", "strings",
		"slices", "maps", "sort", "internal/poll", "sync/atomic":
		return true
	}
	return strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "runtime/") ||
		strings.HasPrefix(pkg, "golang.org/x/sys/")
}

// split takes a function's name apart: the package's path ends at the first dot after its last slash.
func split(name string) (pkg, function string) {
	slash := strings.LastIndexByte(name, '/')
	dot := strings.IndexByte(name[slash+1:], '.')
	if dot < 0 {
		return name, ""
	}
	return name[:slash+1+dot], name[slash+2+dot:]
}

// purpose is what a goroutine is for.
func purpose(s *profile.Sample) (plane, stage string) {
	for i := len(s.Location) - 1; i >= 0; i-- {
		lines := s.Location[i].Line
		for j := len(lines) - 1; j >= 0; j-- {
			if lines[j].Function == nil {
				continue
			}
			for _, p := range purposes {
				if strings.HasPrefix(lines[j].Function.Name, p.function) {
					return p.plane, p.stage
				}
			}
		}
	}
	return "", ""
}

// idle reports whether a goroutine waits for work rather than in it. Who writes, locks or syncs is at work. Who
// receives, selects, reads or sleeps is at work only when it was called for it: a loop that stands there by itself
// has at most three functions of ours on its stack.
func idle(s *profile.Sample) bool {
	ours, inner := 0, true
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			pkg, function := split(line.Function.Name)
			if !beneath(pkg) {
				inner = false
				ours++
			} else if inner && works(function) {
				return false
			}
		}
	}
	return ours <= 3
}

// works reports whether a function of the machinery is called by those who have something to do.
func works(function string) bool {
	for _, part := range []string{"Write", "write", "Lock", "Sync", "fsync", "sendto", "chansend"} {
		if strings.Contains(function, part) {
			return true
		}
	}
	return false
}
