//go:build unix

package execsession

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls tell each time that the terminal has another size, until stop.
func onResize(tell func()) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for range changed {
			tell()
		}
	}()
	return func() { signal.Stop(changed); close(changed) }
}
