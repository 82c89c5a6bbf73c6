package restartpolicy

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	service := Policy{Attempts: 2, Interval: time.Minute, Delay: 4 * time.Second, Mode: "fail", OnSuccess: true}
	batch, delay, none := service, service, service
	batch.OnSuccess, delay.Mode, none.Attempts = false, "delay", 0
	now := time.Unix(1000, 0)
	at := func(ago time.Duration, n int) History { return History{n, now.Add(-ago)} }
	for _, c := range []struct {
		name   string
		p      Policy
		h      History
		end    End
		want   Decision // without Why
		counts int
	}{
		{"first", service, History{}, Failed, Decision{Restart: true, After: 4500 * time.Millisecond}, 1},
		{"a service that ends well", service, History{}, Succeeded,
			Decision{Restart: true, After: 4500 * time.Millisecond}, 1},
		{"a batch that ends well", batch, History{}, Succeeded, Decision{}, 0},
		{"too often", service, at(30*time.Second, 2), Failed, Decision{Failed: true}, 3},
		{"a new interval", service, at(61*time.Second, 2), Failed,
			Decision{Restart: true, After: 4500 * time.Millisecond}, 1},
		{"too often, with patience", delay, at(30*time.Second, 2), Failed,
			Decision{Restart: true, After: 34500 * time.Millisecond}, 3},
		{"no restarts", none, History{}, Failed, Decision{Failed: true}, 0},
		{"no restarts of what ended well", none, History{}, Succeeded, Decision{}, 0},
		{"hopeless", service, History{}, Hopeless, Decision{Failed: true}, 0},
		{"asked", service, at(30*time.Second, 2), Asked, Decision{Restart: true}, 2},
	} {
		got, h := Decide(c.p, c.h, c.end, now, 0.5)
		if got.Why == "" && c.end != Asked {
			t.Errorf("%s: no reason", c.name)
		}
		if got.Why = ""; got != c.want || h.Count != c.counts {
			t.Errorf("%s: %+v %+v", c.name, got, h)
		}
	}
}
