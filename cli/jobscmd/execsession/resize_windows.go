package execsession

import "time"

// resizeEvery is how often a console's size is told: no signal says that it changed.
const resizeEvery = time.Second

// onResize calls tell until stop.
func onResize(tell func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(resizeEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				tell()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
