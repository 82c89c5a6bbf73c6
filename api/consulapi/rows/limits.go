package rows

import (
	"time"
)

// Limits bound request sizes in bytes. Zero fields mean the contract's defaults.
type Limits struct {
	KVValueBytes int64 // [512 KiB]
	TxnBytes     int64 // [512 KiB, at least KVValueBytes]
	BodyBytes    int64 // all other bodies [1 MiB]
	ListBytes    int64 // lists of registrations [8 MiB]
	// Streams, Watches and StreamWatches bound /v1/watch: streams, watches of all, and of one [4,096, 65,536, 4,096].
	Streams, Watches, StreamWatches int
	PathBytes                       int // [8 KiB]
	QueryBytes                      int // [64 KiB]
	CacheBytes                      int // encoded answers [64 MiB]
}

// OrDefault sets a value that is zero.
func OrDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
