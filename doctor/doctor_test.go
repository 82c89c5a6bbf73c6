package doctor

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/doctor/usual"
)

// TestStories runs testdata/*.txt. A story tells evidence line by line, and what the report must say:
//
//	member NAME ROLE [cluster=C] [began=AGO] [addr=A] [depends=PLANE:KIND:ADDR]   begins a member; its series follow
//	timing NAME{label=value} mean=M [p99=P] [max=X] [n=N] [usual=U] [rate=R] [often=O]
//	gauge NAME{...} V [slope=S] [usual=U]       counter NAME{...} SUM [usual=RATE]
//	stack KIND PLANE/STAGE PACKAGE SHARE [seconds=S]      slow PLANE KIND TOOK STAGE=TOOK...
//	floor FSYNC_MS          silent NAME REASON           gap TEXT
//	expect CODE MEMBER      the next finding in order     under CODE   below the finding expected last
//	culprit TEXT, says TEXT, not TEXT, severity S        about the finding expected last
//	fine TEXT               healthy                      clear: begin a new cluster
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { tell(t, file) })
	}
}

// TestEachCodeHasAStory: a rule that no story provokes is not known to work.
func TestEachCodeHasAStory(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for _, code := range Codes() {
		if !strings.Contains(all.String(), "expect "+code+" ") {
			t.Errorf("no story expects %s", code)
		}
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

type story struct {
	t       *testing.T
	cluster Cluster
	report  *Report
	next    int      // of the findings to be expected
	last    *Finding // expected last
}

func tell(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &story{t: t, cluster: Cluster{At: noon}}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.line(line); err != nil {
			t.Fatalf("%s:%d: %s: %v", file, n, line, err)
		}
	}
	s.end()
}

func (s *story) line(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch verb {
	case "clear":
		s.end()
		s.cluster, s.report, s.next, s.last = Cluster{At: noon}, nil, 0, nil
		return nil
	case "expect", "under", "culprit", "says", "not", "severity", "fine", "healthy":
		return s.judge(verb, rest)
	}
	if s.report != nil {
		return fmt.Errorf("evidence after what is expected: begin with clear")
	}
	return s.evidence(verb, rest)
}

// end demands that every finding was expected.
func (s *story) end() {
	if s.report != nil && s.next < len(s.report.Findings) {
		s.t.Errorf("not expected: %+v", s.report.Findings[s.next])
	}
}

func (s *story) judge(verb, rest string) error {
	if s.report == nil {
		r := Judge(&s.cluster)
		s.report = &r
	}
	switch verb {
	case "healthy":
		if !s.report.Healthy() {
			return fmt.Errorf("found %+v", s.report.Findings[0])
		}
		return nil
	case "fine":
		if !slices.ContainsFunc(s.report.Fine, func(f string) bool { return strings.Contains(f, rest) }) {
			return fmt.Errorf("fine are %q", s.report.Fine)
		}
		return nil
	case "expect":
		if s.next >= len(s.report.Findings) {
			return fmt.Errorf("there are only %d findings", len(s.report.Findings))
		}
		f := &s.report.Findings[s.next]
		s.next, s.last = s.next+1, f
		if got := f.Code + " " + f.Member; got != rest {
			return fmt.Errorf("found %s: %s", got, f.Title)
		}
		if f.Title == "" || f.Culprit == "" || len(f.Evidence) == 0 || len(f.Do) == 0 {
			return fmt.Errorf("a finding without title, culprit, evidence or advice: %+v", f)
		}
		return nil
	}
	return s.about(verb, rest)
}

func (s *story) about(verb, rest string) error {
	f := s.last
	has := func(lines []Line) bool {
		return slices.ContainsFunc(lines, func(l Line) bool { return strings.Contains(l.Text, rest) })
	}
	ok := map[string]bool{
		"culprit":  strings.Contains(f.Culprit, rest),
		"says":     strings.Contains(f.Title, rest) || has(f.Evidence),
		"not":      has(f.Not),
		"severity": string(f.Severity) == rest,
		"under":    slices.ContainsFunc(f.Causes, func(c Consequence) bool { return c.Code == rest }),
	}[verb]
	if !ok {
		return fmt.Errorf("the finding is %+v", *f)
	}
	return nil
}

func (s *story) evidence(verb, rest string) error {
	words := strings.Fields(rest)
	if verb == "silent" {
		name, why, _ := strings.Cut(rest, " ")
		s.cluster.Silent = append(s.cluster.Silent, Silent{Member: name, Role: RoleServer, Reason: why})
		return nil
	}
	if verb == "member" {
		return s.member(words)
	}
	if len(s.cluster.Members) == 0 {
		return fmt.Errorf("no member yet")
	}
	m := &s.cluster.Members[len(s.cluster.Members)-1]
	switch verb {
	case "timing", "gauge", "counter":
		series, err := parseSeries(Kind(verb), words, m.Window)
		m.Series = append(m.Series, series)
		return err
	case "stack":
		plane, stage, _ := strings.Cut(words[1], "/")
		share, err := strconv.ParseFloat(words[3], 64)
		stack := Stack{Kind: StackKind(words[0]), Plane: plane, Stage: stage, Package: words[2], Share: share}
		if len(words) > 4 {
			stack.Seconds, err = strconv.ParseFloat(strings.TrimPrefix(words[4], "seconds="), 64)
		}
		m.Stacks = append(m.Stacks, stack)
		return err
	case "slow":
		took, err := time.ParseDuration(words[2])
		slow := Slow{Plane: words[0], Kind: words[1], Took: took, At: noon}
		for _, w := range words[3:] {
			stage, d, _ := strings.Cut(w, "=")
			var part time.Duration
			part, err = time.ParseDuration(d)
			slow.Stages = append(slow.Stages, SlowStage{stage, part})
		}
		m.Slow = append(m.Slow, slow)
		return err
	case "floor":
		v, err := strconv.ParseFloat(words[0], 64)
		m.Floors = &Floors{FsyncMillis: v}
		return err
	case "gap":
		m.Gaps = append(m.Gaps, rest)
		return nil
	}
	return fmt.Errorf("unknown word %q", verb)
}

func (s *story) member(words []string) error {
	m := Evidence{Identity: Identity{Member: words[0], Role: Role(words[1])},
		At: noon, Began: noon.Add(-time.Hour), Window: 30 * time.Second}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "cluster":
			m.Cluster = value
		case "began":
			ago, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			m.Began = noon.Add(-ago)
		case "addr":
			m.Addresses = append(m.Addresses, value)
		case "depends":
			parts := strings.SplitN(value, ":", 3)
			m.Depends = append(m.Depends, Dependency{Plane: parts[0], Kind: parts[1], Addresses: parts[2:]})
		default:
			return fmt.Errorf("unknown word %q", w)
		}
	}
	s.cluster.Members = append(s.cluster.Members, m)
	return nil
}

func parseSeries(kind Kind, words []string, window time.Duration) (Series, error) {
	s := Series{Kind: kind, Since: noon.Add(-time.Minute)}
	name, labels, _ := strings.Cut(words[0], "{")
	s.Name = name
	for _, l := range strings.FieldsFunc(strings.TrimSuffix(labels, "}"), func(r rune) bool { return r == ',' }) {
		n, v, _ := strings.Cut(l, "=")
		s.Labels = append(s.Labels, Label{n, v})
	}
	if kind == Timing {
		s.Now.Count = 1000
	}
	var level usual.Level
	for _, w := range words[1:] {
		key, value, named := strings.Cut(w, "=")
		if !named {
			key, value = "value", w
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return s, err
		}
		switch key {
		case "value":
			s.Now.Value = v
		case "mean":
			s.Now.Mean = v
		case "p99":
			s.Now.P99 = v
		case "max":
			s.Now.Max = v
		case "n":
			s.Now.Count = v
		case "slope":
			s.Now.Slope = v
		case "usual":
			level.Level, level.Windows = v, 1000
		case "often":
			level.Rate = v
		default:
			return s, fmt.Errorf("unknown word %q", w)
		}
	}
	if level.Windows > 0 {
		s.Usual = &level
	}
	switch kind {
	case Counter:
		s.Now.Sum, s.Now.Value = s.Now.Value, 0
		s.Now.Rate = s.Now.Sum / window.Seconds()
	case Timing:
		s.Now.Rate, s.Now.Sum = s.Now.Count/window.Seconds(), s.Now.Count*s.Now.Mean
		s.Now.P99 = max(s.Now.P99, s.Now.Mean)
		s.Now.Max = max(s.Now.Max, s.Now.P99)
	}
	return s, nil
}

func TestUsualIsNotKnownAtOnce(t *testing.T) {
	s := Series{Kind: Timing, Now: Stat{Mean: 100, Count: 100}, Usual: &usual.Level{Level: 1, Windows: 29}}
	if s.times() != 0 {
		t.Error("a ratio to something hardly known")
	}
}
