package sealed

import (
	"sync"

	"corbel.dev/corbel/kit/errkind"
)

// skippedMost is how many damaged records are remembered as logged.
const skippedMost = 1000

// skipped are the damaged records that were logged.
type skipped struct {
	mu   sync.Mutex
	keys map[string]bool
}

// Skip logs a record that is passed over, once.
func (s *Store) Skip(key string, err error) {
	s.skipped.mu.Lock()
	defer s.skipped.mu.Unlock()
	if s.skipped.keys[key] {
		return
	}
	if s.skipped.keys == nil || len(s.skipped.keys) >= skippedMost {
		s.skipped.keys = map[string]bool{}
	}
	s.skipped.keys[key] = true
	s.Log.Error("secrets: a damaged record is skipped; what it is about opens nothing after its end", "key", key, "error",
		err)
}

// Damaged reports whether a record is not what was stored: trying again helps nobody.
func Damaged(err error) bool { return errkind.Is(err, errkind.Corrupt) }

// OrMissing is why a record that must be there was not read.
func OrMissing(err error, key string) error {
	if err != nil {
		return err
	}
	return errkind.Errorf(errkind.Corrupt, "%s is missing", key)
}
