package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// symptom is work that is slow, whatever the reason.
type symptom struct {
	member, plane, kind string
	// stage is where most of the time goes, "" when that is not known.
	stage string
	// share is the stage's part of the time.
	share  float64
	series *Series
	limit  float64
	// lost is the time beyond the limit, as a part of the time that passes: many requests somewhat late weigh as much as
	// a few very late.
	lost float64
}

// slow reports whether a timing is beyond its limit, or far beyond what is usual while near its limit.
func slow(s *Series, limit float64) bool {
	if s == nil || s.Now.Count < fewest {
		return false
	}
	return s.Now.Mean > limit || (s.times() >= usualTimes && s.Now.Mean > limit/4)
}

// symptoms lists what is slow on a member.
func (v *view) symptoms() []symptom {
	var out []symptom
	add := func(s *Series, plane, kind, stage string, limit float64) {
		if !slow(s, limit) {
			return
		}
		y := symptom{member: v.Member, plane: plane, kind: kind, stage: stage, share: 1, series: s, limit: limit}
		if stage == "" {
			y.stage, y.share = v.longest(plane, kind, s.Now.Mean)
		}
		y.lost = max(s.Now.Mean-limit/4, 0) * max(s.Now.Rate, s.Now.Count/max(v.Window.Seconds(), 1))
		out = append(out, y)
	}
	for _, s := range v.all("request.total") {
		plane, kind := s.Label("plane"), s.Label("kind")
		add(s, plane, kind, "", requestLimitOf(plane, kind))
	}
	for _, s := range v.all("group.replicate") {
		add(s, s.Label("group"), commitKind, "replicate", commitLimit)
	}
	add(v.one("catalog.register"), "catalog", "register", "", registerLimit)
	if s := v.one("monitor.stored"); s != nil && s.Now.Count >= fewest && s.Now.P99 > eventLimit {
		out = append(out, symptom{member: v.Member, plane: "monitor", kind: "event", stage: "storage", share: 1, series: s,
			limit: eventLimit,
			lost:  s.Now.P99 * s.Now.Count / max(v.Window.Seconds(), 1) / 100})
	}
	return out
}

// requestLimitOf is the limit of a request's mean. Logins hash passwords, which is meant to take long.
func requestLimitOf(plane, kind string) float64 {
	switch {
	case plane == "secrets" && kind == "login":
		return 1500
	case plane == "secrets":
		return secretsLimit
	case plane == "monitor":
		return eventLimit
	case plane == "mesh":
		return changeLimit
	case plane == "catalog" && kind == "register":
		return registerLimit
	default:
		return requestLimit
	}
}

// longest is the stage of a kind of request in which most of the time goes. Its own computing is what no stage
// accounts for.
func (v *view) longest(plane, kind string, mean float64) (stage string, share float64) {
	var sum, most float64
	total := 0.0
	if s := v.one("request.total", "plane", plane, "kind", kind); s != nil {
		total = s.Now.Sum
	}
	for _, s := range v.all("request.stage", "plane", plane, "kind", kind) {
		sum += s.Now.Sum
		if s.Now.Sum > most {
			most, stage = s.Now.Sum, s.Label("stage")
		}
	}
	if total <= 0 {
		total = sum
	}
	if total <= 0 {
		return "", 0
	}
	return stage, min(most/total, 1)
}

// line words a symptom.
func (y *symptom) line() Line {
	return Line{Key: y.series.Key(), Text: fmt.Sprintf("%s %s takes %s on average%s (limit %s)",
		y.plane, y.kind, millis(y.series.Now.Mean), usually(y.series), millis(y.limit))}
}

const (
	// commitKind is the kind of symptom of a group's own commits.
	commitKind = "commit"
	// stageShare is from which part of a request's time on a stage is blamed for it.
	stageShare = 0.25
)

// unexplained is the finding for a symptom without a cause.
func (y *symptom) unexplained(v *view) Finding {
	f := Finding{Code: "slow-requests", Severity: Warning, Member: y.member, Plane: y.plane, Stage: y.stage,
		cause: cause{layer: layerSymptom},
		Since: y.series.Since, Evidence: []Line{y.line()}, subject: y.plane + "/" + y.kind, Culprit: "not known yet"}
	f.Title = fmt.Sprintf("%s: %s of %s is slow (%s on average), and no known cause explains it", y.member,
		y.kind, y.plane, millis(y.series.Now.Mean))
	if y.kind == commitKind { // what waits for its group is an effect of that
		f.layer, f.explains = layerCommit, []reach{{member: y.member, plane: y.plane}}
	} else {
		f.effect = true
	}
	if y.stage != "" && y.share >= stageShare {
		f.Culprit = "stage " + y.stage
		f.Title = fmt.Sprintf("%s: %s of %s is slow (%s on average); %.0f %% of the time is spent in %s", y.member, y.kind,
			y.plane, millis(y.series.Now.Mean), 100*y.share, stageWords(y.stage))
	}
	for i := range v.Slow {
		if s := &v.Slow[i]; s.Plane == y.plane && s.Kind == y.kind {
			f.Evidence = append(f.Evidence, Line{Text: "one of the slowest: " + s.words()})
			break
		}
	}
	f.Do = []string{
		"Save an archive while it is slow: corbel debug --duration 30s; corbel doctor --from reads it anywhere.",
		"Look at the slowest requests of this kind: corbel doctor --json shows their stages.",
	}
	return f
}

func (s *Slow) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s took %s", s.Kind, s.Took.Round(100*time.Microsecond))
	for i, st := range s.Stages {
		b.WriteString([]string{": ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s %s", st.Stage, st.Took.Round(100*time.Microsecond))
	}
	if s.Trace != "" {
		b.WriteString(" (trace " + s.Trace + ")")
	}
	return b.String()
}

// doings is what happens in a stage.
var doings = map[string]string{
	"queue":     "waiting in the queue",
	"token":     "token and policy",
	"encode":    "encoding",
	"append":    "writing to the log",
	"fsync":     "the fsync on this server's disk",
	"replicate": "replication to a quorum",
	"apply":     "applying it to the state",
	"notify":    "waking watchers",
	"write":     "writing to the client's socket",
	"build":     "building configuration for proxies",
	"send":      "sending to the proxies",
	"ack":       "waiting for proxies to acknowledge it",
	"storage":   "the storage behind the plane",
	"handler":   "handlers",
	"receive":   "reading from agents and waiting for room",
	"step":      "computing the check's new state",
	"forward":   "forwarding to the server that owns the entity",
}

// stageWords says what happens in a stage; its name where that is not known.
func stageWords(stage string) string { return cmp.Or(doings[stage], stage) }

// millis words a duration given in milliseconds.
func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// usually words how far a series is from what is usual for it, "" when that is not known or not worth saying.
func usually(s *Series) string {
	times := s.times()
	if times == 0 {
		return ""
	}
	if times < 1.5 {
		return ", as usual"
	}
	return fmt.Sprintf(", %s its usual", timesWord(times))
}

func timesWord(times float64) string {
	if times < 10 {
		return fmt.Sprintf("%.1fx", times)
	}
	return fmt.Sprintf("%.0fx", min(times, 9999))
}

// times is how many times its usual level a timing's mean, a gauge's value or a counter's rate is; 0 when that is not
// known.
func (s *Series) times() float64 {
	if !s.Usual.Known() || s.Usual.Level <= 0 {
		return 0
	}
	return s.level() / s.Usual.Level
}

// level is what Usual.Level is the usual of.
func (s *Series) level() float64 {
	switch s.Kind {
	case Timing:
		return s.Now.Mean
	case Counter:
		return s.Now.Rate
	default:
		return s.Now.Value
	}
}
