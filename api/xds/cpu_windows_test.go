package xds

import "time"

// processorTime is not told here: the benchmarks then report none.
func processorTime() time.Duration { return 0 }
