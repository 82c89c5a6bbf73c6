package journal

import (
	"encoding/binary"
	"fmt"
	"testing"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// powerJournal appends frame n in step n, and drops old segments at times.
type powerJournal struct {
	*Journal
	frames []uint64 // replayed or appended
}

func openPowerJournal(fsys vfs.FS) (powertest.Store, error) {
	p := &powerJournal{}
	j, err := Open(config(fsys), func(sequence uint64, content []byte) error {
		if len(content) != 48 || binary.LittleEndian.Uint64(content) != sequence {
			return fmt.Errorf("frame %d is %x", sequence, content)
		}
		p.frames = append(p.frames, sequence)
		return nil
	})
	p.Journal = j
	return p, err
}

// Step implements powertest.Store.
func (p *powerJournal) Step(n int) error {
	sequence, err := p.Append(binary.LittleEndian.AppendUint64(nil, uint64(n)), make([]byte, 40))
	if err != nil {
		return err
	}
	if sequence != uint64(n) {
		return fmt.Errorf("step %d is frame %d", n, sequence)
	}
	if n%9 == 0 {
		_ = p.Drop(uint64(n - 6)) // what is not dropped stays
	}
	return nil
}

// Have implements powertest.Store.
func (p *powerJournal) Have() (int, error) {
	for i, sequence := range p.frames {
		if sequence != p.frames[0]+uint64(i) {
			return 0, fmt.Errorf("frame %d follows %d", sequence, p.frames[i-1])
		}
	}
	return int(p.Sequence()), nil
}

// TestPower: what a journal replays is on the disk, whatever fsync failed and whenever the process was killed before
// the power loss.
func TestPower(t *testing.T) {
	powertest.Run(t, powertest.Kind{Open: openPowerJournal, Steps: 24})
}
