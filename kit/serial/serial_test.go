package serial

import (
	"sync"
	"testing"
)

// A name is had once at a time, whoever asks; no name keeps nobody waiting.
func TestTake(t *testing.T) {
	var names Names
	var group sync.WaitGroup
	n := 0 // guarded by the name
	for range 8 {
		group.Go(func() {
			for range 1000 {
				give := names.Take("one")
				n++
				give()
			}
		})
	}
	defer names.Take("")()
	defer names.Take("")()
	group.Wait()
	if n != 8000 {
		t.Errorf("counted %d, want 8000", n)
	}
}
