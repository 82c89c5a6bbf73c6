package agents

import "time"

// turn is when a session is to do something again.
type turn struct {
	s     *session
	opens uint32
	at    time.Time
}

// turns come around in the order in which they were put, since all wait equally long.
type turns struct {
	list []turn
	head int
}

func (q *turns) add(s *session, at time.Time) { q.list = append(q.list, turn{s, s.opens, at}) }

// due returns the next session whose turn it is; nil is none yet.
func (q *turns) due(now time.Time) *session {
	for q.head < len(q.list) {
		t := q.list[q.head]
		if t.s.opens == t.opens && t.at.After(now) {
			return nil
		}
		q.list[q.head] = turn{}
		if q.head++; q.head > len(q.list)/2 {
			n := copy(q.list, q.list[q.head:])
			q.list, q.head = q.list[:n], 0
		}
		if t.s.opens == t.opens {
			return t.s
		}
	}
	return nil
}
