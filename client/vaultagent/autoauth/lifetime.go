package autoauth

import "time"

// lifetime is what is known of a token's time. Its methods are pure.
type lifetime struct {
	full      time.Duration // as it was first
	left      time.Duration // as the last answer had it
	renewable bool
}

// next is how long to wait now, and whether to renew then or to log in anew. chance is from 0 to 1: agents that started
// together must not ask together.
func (l lifetime) next(chance float64) (wait time.Duration, renew bool) {
	if l.renewable {
		return time.Duration(float64(l.left) * (0.6 + 0.2*chance)), true
	}
	return time.Duration(float64(l.left) * (0.8 + 0.1*chance)), false
}

// renewed is the lifetime after an answer. One that gave less than a third of the time at first has come to the
// token's longest: renewing on would bring less and less.
func (l lifetime) renewed(left time.Duration, renewable bool) lifetime {
	return lifetime{full: l.full, left: left, renewable: renewable && left > l.full/3}
}
