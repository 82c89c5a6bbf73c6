package runs

// HistoryLength is how many runs a check's history holds, the newest among them.
const HistoryLength = 21

// History holds a check's newest runs in the order of their arrival. Times are kept as
// seconds from the first one, so a history is about 180 bytes. The zero value is empty.
type History struct {
	base  int64
	runs  [HistoryLength]run
	first uint8 // where the oldest run is
	n     uint8
}

type run struct{ after, status uint32 }

// Len returns the number of runs, at most HistoryLength.
func (h *History) Len() int { return int(h.n) }

// At returns a run, 0 being the oldest.
func (h *History) At(i int) (status uint32, executed int64) {
	r := h.runs[(int(h.first)+i)%HistoryLength]
	return r.status, h.base + int64(r.after)
}

// Newest returns the status of the newest run.
func (h *History) Newest() (status uint32, ok bool) {
	if h.n == 0 {
		return 0, false
	}
	status, _ = h.At(int(h.n) - 1)
	return status, true
}

// Add puts a run behind the others; the oldest one goes when there are too many.
func (h *History) Add(status uint32, executed int64) {
	if h.n == 0 {
		h.base = executed
	}
	if after := executed - h.base; after < 0 || after > 1<<32-1 {
		h.rebase(executed)
	}
	if h.n == HistoryLength {
		h.first = (h.first + 1) % HistoryLength
		h.n--
	}
	h.runs[(int(h.first)+int(h.n))%HistoryLength] = run{uint32(executed - h.base), status}
	h.n++
}

// rebase chooses a base that executed fits to. Times that are then out of reach (136 years
// away: some clock was wrong) become the nearest that is not.
func (h *History) rebase(executed int64) {
	base := executed
	for i := range int(h.n) {
		if _, at := h.At(i); at < base && executed-at <= 1<<32-1 {
			base = at
		}
	}
	for i := range int(h.n) {
		r := &h.runs[(int(h.first)+i)%HistoryLength]
		r.after = uint32(min(max(h.base+int64(r.after)-base, 0), 1<<32-1))
	}
	h.base = base
}

// Change returns how much the status changed over the history in per cent, newer changes
// weighing more; 0 while the history is not full.
func (h *History) Change() uint32 {
	if h.n < HistoryLength {
		return 0
	}
	sum, weight := 0.0, 0.80
	before, _ := h.At(0)
	for i := 1; i < HistoryLength; i++ {
		status, _ := h.At(i)
		if status != before {
			sum += weight
		}
		weight += 0.02
		before = status
	}
	// in 32 bits, as the reference: it decides what truncating leaves
	return uint32(float32(sum) / (HistoryLength - 1) * 100)
}
