package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A test that fails beside everything else of a small machine, and then passes
// three times in a row alone, is unsteady: that is a defect of the test, is said
// loudly at the end, and does not stop a change that has nothing to do with it.
// Where a single failure is evidence there is no second trial: data races, and
// the packages that judge recorded histories, where a run is a draw from many
// and the first bad one is the find. See docs/decisions/0005-unsteady-tests.md.
const (
	trialCount  = 3 // passes in a row, alone
	trialsInRun = 3 // tests in a run; with more something is broken, not unsteady
)

// firstTimeOnly are packages whose failures stand at once.
var firstTimeOnly = []string{"test/fault", "test/fault/flood", "test/regress", "kit/fault/history"}

// failure is one failed test of one package, or the whole of it when the test has no name.
type failure struct{ pkg, test, detail string }

func (f failure) name() string { return strings.TrimSpace(short(f.pkg) + " " + f.test) }

// pattern names the test for go test -run. A script of test/e2e is tried without the others.
func (f failure) pattern() string {
	if f.test == "" {
		return ""
	}
	var names []string
	for name := range strings.SplitSeq(f.test, "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	return strings.Join(names, "/")
}

// mayBeUnsteady reports whether a second trial can say anything about the failure. Metrics of a bench that is shown are
// no evidence, whatever their names say.
func (f failure) mayBeUnsteady() bool {
	said := strings.ReplaceAll(f.detail, "\"mesh.acknowledged.", "")
	for _, evidence := range []string{"DATA RACE", "panic:", "linearizab", "acknowledged"} {
		if strings.Contains(said, evidence) {
			return false
		}
	}
	return !slices.ContainsFunc(firstTimeOnly, func(p string) bool {
		return p == short(f.pkg) || strings.HasPrefix(short(f.pkg), p+"/")
	})
}

// settle counts what failed in a run: as failed, or as unsteady when each of
// the few passes three times alone. trial runs tests of a package and says whether all passed.
func (r *runner) settle(list []failure, trial func(pkg, pattern string) bool) {
	tried := map[string]bool{} // by package and test
	for _, f := range list {
		pattern := f.pattern()
		key := f.pkg + " " + pattern
		passes, known := tried[key]
		if !known {
			passes = f.mayBeUnsteady() && len(tried) < trialsInRun && trial(f.pkg, pattern)
			tried[key] = passes
		}
		if !passes || !f.mayBeUnsteady() {
			r.fail(f.name(), f.detail)
			continue
		}
		r.unsteady = append(r.unsteady, f.name())
		fmt.Printf("UNSTEADY %s: failed once, then passed %d times alone; the failure was\n%s\n", f.name(), trialCount,
			indent(f.detail))
	}
}
