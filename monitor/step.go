package monitor

import "corbel.dev/corbel/monitor/runs"

// Condition is what a check's results amount to.
type Condition uint8

// The conditions, in the contract's words.
const (
	Unknown Condition = iota
	Passing
	Failing
	Flapping
)

// String returns the contract's word; Unknown has none.
func (c Condition) String() string { return [...]string{"", "passing", "failing", "flapping"}[c] }

// Result is what is new in each run of a check.
type Result struct {
	Timestamp int64 // of the event
	Sequence  int64
	ID        [16]byte
	Issued    int64
	Executed  int64
	Duration  float64 // seconds
	Status    uint32
}

// State is what is known of one check on one entity: the newest result, and what those
// before it make of it. A State is a value; Step returns a new one.
type State struct {
	Result
	Condition   Condition
	Change      uint32 // per cent of the history
	LastOK      int64
	Occurrences int64 // runs with this status in a row
	Watermark   int64 // the most occurrences since the incident began
	History     runs.History
	Silenced    []string // the silences that held; never changed in place
}

// Thresholds are the per cents of change that begin and end flapping; a check flaps only where both are set.
type Thresholds struct{ Low, High uint32 }

// Outcome is what a step asks for beside the new state.
type Outcome struct {
	Incident   bool // the check fails
	Resolution bool // it passes, and failed before
	Steady     bool // it passes and passed before, and nothing but the newest result is new
	// Lifted are the silences that were to end with the incident.
	Lifted []string
}

// Step takes a result to what is known of its check. silences are those that hold for it,
// at its arrival (Silences.Of).
//
// Order of arrival is the order of history, whatever the times in the results: an agent sends them in turn.
func Step(old State, r Result, t Thresholds, silences []*Silenced) (State, Outcome) {
	before, known := old.History.Newest()
	s := old
	s.Result = r
	s.History.Add(r.Status, r.Executed)
	s.Change = s.History.Change()
	switch {
	case t.Low != 0 && t.High != 0 && s.Change >= t.High:
		s.Condition = Flapping
	case r.Status == 0:
		s.Condition = Passing
		s.LastOK = r.Executed
	default:
		s.Condition = Failing
	}
	s.count(before, known)

	out := Outcome{Incident: r.Status != 0, Resolution: known && before != 0 && r.Status == 0}
	s.Silenced = s.Silenced[:0:0]
	for _, sil := range silences {
		if out.Resolution && sil.ExpireOnResolve {
			out.Lifted = append(out.Lifted, sil.Name)
			continue
		}
		s.Silenced = append(s.Silenced, sil.Name)
	}
	out.Steady = known && before == 0 && r.Status == 0 && s.Condition == old.Condition && len(s.Silenced) == 0 &&
		len(old.Silenced) == 0
	return s, out
}

// count follows how often the status came in a row. The watermark begins anew with an incident
// alone, so that a resolution still knows how long its incident was.
func (s *State) count(before uint32, known bool) {
	same := known && before == s.Status
	if same {
		s.Occurrences++
	} else {
		s.Occurrences = 1
	}
	switch {
	case known && before == 0 && s.Status != 0:
		s.Watermark = 1
	case s.Occurrences > s.Watermark:
		s.Watermark = s.Occurrences
	}
}

// Fill writes what is known into an event's check, over whatever its sender claimed.
func (s *State) Fill(c *Check) {
	c.Issued, c.Executed, c.Duration, c.Status = s.Issued, s.Executed, s.Duration, s.Status
	c.History = runsOf(&s.History)
	c.State = s.Condition.String()
	c.TotalStateChange = s.Change
	c.LastOK = s.LastOK
	c.Occurrences, c.Watermark = s.Occurrences, s.Watermark
	c.Silenced, c.IsSilenced = s.Silenced, len(s.Silenced) > 0
}

// runsOf is a history in the contract's form.
func runsOf(h *runs.History) []Run {
	out := make([]Run, h.Len())
	for i := range out {
		out[i].Status, out[i].Executed = h.At(i)
	}
	return out
}

// ResultOf returns what is new in an event with a check.
func ResultOf(e *Event) Result {
	r := Result{
		Timestamp: e.Timestamp, Sequence: e.Sequence,
		Issued: e.Check.Issued, Executed: e.Check.Executed, Duration: e.Check.Duration, Status: e.Check.Status,
	}
	copy(r.ID[:], e.ID)
	return r
}
