//go:build unix

package pgevents

import (
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/monitor/eventstore/eventstoretest"
)

// Servers that make the partition of a new day at the same time all have it.
func TestPartitionsAtOnce(t *testing.T) {
	dsn := schema(t)
	var servers []*Store
	for _, self := range []string{"a", "b", "c", "d"} {
		_, l := eventstoretest.Loaded()
		servers = append(servers, open(t, Config{DSN: dsn, Self: self}, l))
	}
	for n := range 20 {
		at := time.Date(2030, 1, 1+n, 12, 0, 0, 0, time.UTC)
		var all sync.WaitGroup
		for _, s := range servers {
			all.Go(func() {
				if err := s.prepare(t.Context(), []run{{at: at}}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
