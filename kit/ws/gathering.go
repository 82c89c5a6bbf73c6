package ws

import (
	"net/netip"
	"time"

	"corbel.dev/corbel/kit/limit"
)

// slowestBytes is how many bytes a second a large message must bring once Limits.Idle is over: less is somebody who
// holds a part of the budget.
const slowestBytes = 64 << 10

// gathering is a message that does not come at once, and what it holds of the budget of bytes.
type gathering struct {
	frames []byte // of a message in parts, those that came whole; a peer's
	want   int    // how long the frame is that comes, as it says; 0 is small or unknown
	hold   limit.Hold
	began  time.Time // when it was large
}

// admit finds room for n bytes. The error is a *CloseError.
func (g *gathering) admit(n int, l *Limits, who func() netip.Addr) error {
	if n <= limit.FreeBytes || l.Bytes == nil {
		return nil
	}
	if g.began.IsZero() {
		g.hold, g.began = l.Bytes.Hold(who()), time.Now()
	}
	if g.hold.Gather(n) != nil {
		return &CloseError{CloseTryAgain, "there is no room for large messages: try again in a second"}
	}
	if late := time.Since(g.began) - l.Idle; late > time.Duration(n/slowestBytes)*time.Second {
		return &CloseError{ClosePolicy, "a large message comes too slowly"}
	}
	return nil
}
