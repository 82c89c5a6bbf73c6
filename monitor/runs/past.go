package runs

import "corbel.dev/corbel/kit/pack"

// PastMost is the most spans that a Past holds, whatever Trim is asked for.
const PastMost = 1000

// Span is a time in which a check had one status.
type Span struct {
	Status uint32 `json:"status"`
	First  int64  `json:"first"` // Unix seconds of the first run
	Last   int64  `json:"last"`  // and of the last one
	Runs   int64  `json:"runs"`
}

// Past is what a check went through, as spans in the order of arrival: weeks in which nothing changes are one of
// them. The newest span is kept apart, so a check that never changed takes 40 bytes, and one that did 16 for each
// span. The zero value is empty.
//
// A copy stays as it is while the original goes on; of two copies only one may be added to.
type Past struct {
	older  []span
	newest span // no runs is none
}

// span holds times as Unix seconds, from 1970 to 2106.
type span struct{ status, runs, first, last uint32 }

func seconds(at int64) uint32 { return uint32(min(max(at, 0), 1<<32-1)) }

// Add puts a run behind the others, and reports whether it begins a span.
func (p *Past) Add(status uint32, executed int64) bool {
	at, n := seconds(executed), &p.newest
	if n.runs > 0 && n.status == status {
		n.last = at
		if n.runs < 1<<32-1 {
			n.runs++
		}
		return false
	}
	if n.runs > 0 {
		p.older = append(p.older, *n)
		p.Trim(PastMost, 0)
	}
	*n = span{status, 1, at, at}
	return true
}

// Trim lets the oldest spans go, such as are more than most, or ended before oldest (Unix seconds). The newest one
// stays.
func (p *Past) Trim(most int, oldest int64) {
	drop := max(len(p.older)+1-max(most, 1), 0)
	for drop < len(p.older) && int64(p.older[drop].last) < oldest {
		drop++
	}
	if p.older = p.older[drop:]; len(p.older) == 0 {
		p.older = nil // so that what was in it goes
	}
}

// Len returns the number of spans.
func (p *Past) Len() int {
	if p.newest.runs == 0 {
		return 0
	}
	return len(p.older) + 1
}

// Newest returns the newest span, one without runs where there is none.
func (p *Past) Newest() Span { return p.newest.public() }

// Again returns how many spans before the newest one began in the same second as it did: with it, spans of one second
// have an order, and the same one wherever the same results were stepped.
func (p *Past) Again() (n int) {
	for i := len(p.older) - 1; i >= 0 && p.older[i].first == p.newest.first; i-- {
		n++
	}
	return n
}

// Older returns the past without its newest span: what changes only when one begins.
func (p *Past) Older() Past {
	n := len(p.older)
	if n == 0 {
		return Past{}
	}
	return Past{p.older[: n-1 : n-1], p.older[n-1]}
}

// Spans returns the spans, oldest first.
func (p *Past) Spans() []Span {
	out := make([]Span, p.Len())
	for i := range out {
		out[i] = p.at(i).public()
	}
	return out
}

func (p *Past) at(i int) span {
	if i < len(p.older) {
		return p.older[i]
	}
	return p.newest
}

func (s span) public() Span {
	return Span{s.status, int64(s.first), int64(s.last), int64(s.runs)}
}

// Put puts a whole span behind the others, as a store that kept it by itself does.
func (p *Past) Put(s Span) {
	if p.newest.runs > 0 {
		p.older = append(p.older, p.newest)
		p.Trim(PastMost, 0)
	}
	p.newest = span{s.Status, max(seconds(s.Runs), 1), seconds(s.First), seconds(s.Last)}
}

// PastOf returns what a history tells of the past.
func PastOf(h *History) (p Past) {
	for i := range h.Len() {
		p.Add(h.At(i))
	}
	return p
}

// AppendPast writes p, some eight bytes a span, with fields as package pack writes them.
func AppendPast(b []byte, p *Past) []byte {
	b = pack.Uint(b, uint64(p.Len()))
	before := int64(0)
	for i := range p.Len() {
		s := p.at(i)
		b = pack.Uint(b, uint64(s.status))
		b = pack.Uint(b, uint64(s.runs))
		b = pack.Int(b, int64(s.first)-before)
		b = pack.Int(b, int64(s.last)-int64(s.first))
		before = int64(s.last)
	}
	return b
}

// ReadPast reads what AppendPast wrote. What is damaged is an error of the reader.
func ReadPast(r *pack.Reader) (p Past) {
	n := r.Count()
	if n > 1 {
		p.older = make([]span, 0, min(n, PastMost)-1)
	}
	before := int64(0)
	for range n {
		s := Span{Status: uint32(r.Uint()), Runs: int64(r.Uint())}
		s.First = before + r.Int()
		s.Last = s.First + r.Int()
		before = s.Last
		if r.Err() != nil {
			return Past{}
		}
		p.Put(s)
	}
	return p
}
