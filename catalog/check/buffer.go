package check

// ring keeps the last n bytes written to it. Not safe for concurrent use.
type ring struct {
	buf  []byte
	size int
	next int // place of the next byte once buf is full
}

func newRing(size int) *ring { return &ring{size: size} }

// Write implements io.Writer; it never fails.
func (r *ring) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) >= r.size {
		r.buf = append(r.buf[:0], p[len(p)-r.size:]...)
		r.next = 0
		return n, nil
	}
	if room := r.size - len(r.buf); room > 0 {
		k := min(room, len(p))
		r.buf = append(r.buf, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(r.buf[r.next:], p)
		r.next = (r.next + k) % r.size
		p = p[k:]
	}
	return n, nil
}

// String is what is kept, oldest first.
func (r *ring) String() string {
	return string(r.buf[r.next:]) + string(r.buf[:r.next])
}
