//go:build !linux

package spawn

import (
	"time"
)

func processTime(int) (time.Duration, bool) { return 0, false }
