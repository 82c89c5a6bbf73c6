package logstore

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/vfs/powertest"
)

// powerLog is a log whose step n appends entry n. At times it compacts, or throws away what another leader had put
// there.
type powerLog struct{ *Store }

func openPowerLog(fsys vfs.FS) (powertest.Store, error) {
	s, err := Open(Config{Group: "test", Dir: "/log", FS: fsys, SegmentBytes: 2 << 10})
	if err != nil {
		return nil, err
	}
	return powerLog{s}, nil
}

// foreign is the term of what was replaced.
const foreign = 1

func powerEntry(n int, term uint64) *raft.Log {
	return &raft.Log{Index: uint64(n), Term: term, Data: fmt.Appendf(nil, "%d %0300d", n, term)}
}

// Step implements powertest.Store.
func (l powerLog) Step(n int) error {
	if last, _ := l.LastIndex(); last >= uint64(n) {
		if err := l.DeleteRange(uint64(n), last); err != nil {
			return err
		}
	}
	if n%6 == 0 {
		if err := l.StoreLogs([]*raft.Log{powerEntry(n, foreign), powerEntry(n+1, foreign)}); err != nil {
			return err
		}
		if err := l.DeleteRange(uint64(n), uint64(n+1)); err != nil {
			return err
		}
	}
	if n%8 == 0 {
		if err := l.DeleteRange(0, uint64(n-5)); err != nil {
			return err
		}
	}
	return l.StoreLog(powerEntry(n, 2))
}

// Have implements powertest.Store.
func (l powerLog) Have() (int, error) {
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	for i := first; i != 0 && i <= last; i++ {
		var got raft.Log
		if err := l.GetLog(i, &got); err != nil {
			return 0, err
		}
		if got.Term == foreign {
			return int(i - 1), nil
		}
		if string(got.Data) != string(powerEntry(int(i), 2).Data) {
			return 0, fmt.Errorf("entry %d reads as %.20s", i, got.Data)
		}
	}
	return int(last), nil
}

// powerVotes are term and vote of a store; step n sets them.
type powerVotes struct{ *Store }

// Step implements powertest.Store.
func (v powerVotes) Step(n int) error { return v.SetUint64([]byte("term"), uint64(n)) }

// Have implements powertest.Store.
func (v powerVotes) Have() (int, error) {
	n, err := v.GetUint64([]byte("term"))
	if err == ErrNotFound {
		err = nil
	}
	return int(n), err
}

// TestPower: what a log counts as its own is on the disk, whatever fsync failed and whenever the process was killed
// before the power loss.
func TestPower(t *testing.T) {
	t.Run("log", func(t *testing.T) { powertest.Run(t, powertest.Kind{Open: openPowerLog, Steps: 20}) })
	t.Run("votes", func(t *testing.T) {
		powertest.Run(t, powertest.Kind{Steps: 6, Open: func(fsys vfs.FS) (powertest.Store, error) {
			s, err := Open(Config{Group: "test", Dir: "/log", FS: fsys, SegmentBytes: 2 << 10})
			return powerVotes{s}, err
		}})
	})
}
