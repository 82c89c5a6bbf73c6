package sealed

import (
	"context"
	"errors"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets/storage"
)

// ErrNextHash is what the function of Hop returns to see no more of a hash.
var ErrNextHash = errors.New("the next hash")

const (
	hopCount = 16  // records that one step of a hop over an index reads
	hopMore  = 256 // of one hash, once it is known to have as many
)

// Hop calls each for every key prefix+hash+"/..." of the given hashes. Most tokens keep nothing, so it does not ask for
// each of them: it reads a few records from where the next hash would be, and goes on from the one that it finds there.
// Only keys are read.
func (s *Store) Hop(ctx context.Context, prefix string, hashes []string, each func(hash, key string) error) error {
	sorted := slices.Compact(slices.Sorted(slices.Values(hashes)))
	end := storage.After(prefix)
	for len(sorted) > 0 {
		records, err := s.Under.Scan(ctx, prefix+sorted[0]+"/", end, hopCount)
		if err != nil {
			return err
		}
		var open string
		if sorted, open, err = hopOver(sorted, prefix, records, each); err != nil {
			return err
		}
		if len(records) < hopCount {
			return nil // the index ends here
		}
		if open != "" {
			own := prefix + open + "/"
			if err := s.hopOne(ctx, records[hopCount-1].Key+"\x00", own, func(key string) error {
				return each(open,
					key)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hopOver deals with what was read. It gives the hashes behind it, and the one that the last record is of, where each
// wants to see more of it.
func hopOver(sorted []string, prefix string, records []storage.Record, each func(hash,
	key string) error) (rest []string, open string, err error) {
	for _, r := range records {
		owner, _, _ := strings.Cut(r.Key[len(prefix):], "/")
		if owner != open {
			open = ""
		}
		for len(sorted) > 0 && sorted[0] < owner {
			sorted = sorted[1:]
		}
		if open == "" && (len(sorted) == 0 || sorted[0] != owner) {
			continue // nobody's who is asked for, or each has seen enough of it
		}
		if open == "" {
			open, sorted = owner, sorted[1:]
		}
		switch err := each(owner, r.Key); {
		case errors.Is(err, ErrNextHash):
			open = ""
		case err != nil:
			return nil, "", err
		}
	}
	return sorted, open, nil
}

// hopOne reads on in what one hash keeps.
func (s *Store) hopOne(ctx context.Context, from, prefix string, each func(key string) error) error {
	for {
		records, err := s.Under.Scan(ctx, from, storage.After(prefix), hopMore)
		if err != nil || len(records) == 0 {
			return err
		}
		for _, r := range records {
			switch err := each(r.Key); {
			case errors.Is(err, ErrNextHash):
				return nil
			case err != nil:
				return err
			}
			from = r.Key + "\x00"
		}
	}
}
