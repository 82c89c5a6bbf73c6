package ingest

import (
	"math/rand/v2"
	"time"
)

// watchEvery is of how many results one is timed, by chance: what comes in a rhythm would fool a count. Clocks are
// what timing costs.
const watchEvery = 16

// watch times one result on its way, or does nothing: the zero value.
type watch struct{ came, stepped time.Time }

// sampled begins to time a result, when its turn has come.
func (in intake) sampled() (w watch) {
	if in.cfg.Meter != nil && rand.Uint32()%watchEvery == 0 {
		w.came = time.Now()
	}
	return w
}

// begins is when the shard takes the result up.
func (w *watch) begins() {
	if !w.came.IsZero() {
		w.stepped = time.Now()
	}
}

// ends is when the result's step is done.
func (w *watch) ends(in *Ingest) {
	if !w.stepped.IsZero() {
		in.cfg.Meter.Stepped(w.stepped.Sub(w.came), time.Since(w.stepped))
	}
}
