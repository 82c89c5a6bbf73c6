//go:build !linux

package notify

import "time"

// monotonic is for systemd, which is there on Linux alone.
func monotonic() time.Duration { return 0 }
