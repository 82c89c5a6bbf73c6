package vfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// never is a source of coins that keep nothing.
type never struct{}

func (never) Uint64() uint64 { return 1 << 33 } // small, and not one that a generator refuses

// plugged are a Mem and a Power that live through the same.
type plugged struct {
	t          *rapid.T
	mem        *Mem
	faults     [2]*Faulty
	root, side string
	open       [2]File
	cut        bool // a file was cut since the last power loss: what a failed Sync then leaves is not the same in both
}

func (w *plugged) plugIn() {
	power, err := NewPower(w.root, w.side)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mem.rng = rand.New(never{})
	w.faults = [2]*Faulty{NewFaulty(w.mem), NewFaulty(power)}
}

func (w *plugged) path(i int, name string) string {
	return filepath.Join([2]string{"/m", w.root}[i], name)
}

func (w *plugged) both(what string, do func(i int) error) {
	first, second := do(0), do(1)
	if errorKind(first) != errorKind(second) {
		w.t.Fatalf("%s: Mem says %v, Power says %v", what, first, second)
	}
}

// let does it to the open file.
func (w *plugged) let(what string, do func(f File) error) {
	if w.open[0] != nil {
		w.both(what, func(i int) error { return do(w.open[i]) })
	}
}

func (w *plugged) close() {
	for i, f := range w.open {
		if f != nil {
			_ = f.Close()
		}
		w.open[i] = nil
	}
}

func (w *plugged) listing(fsys FS, root string) string {
	entries, err := fsys.ReadDir(root)
	text := errorKind(err)
	for _, e := range entries {
		data, err := ReadFile(fsys, filepath.Join(root, e.Name()))
		text += fmt.Sprintf(" %s=%x%s", e.Name(), data, errorKind(err))
	}
	return text
}

func (w *plugged) compare(what string) {
	if mem, disk := w.listing(w.mem, "/m"), w.listing(OS{}, w.root); mem != disk {
		w.t.Fatalf("%s: Mem has\n%s\nand the disk\n%s", what, mem, disk)
	}
}

func (w *plugged) openOne(name string, flag int) {
	w.close()
	w.cut = w.cut || flag&os.O_TRUNC != 0
	w.both("open", func(i int) error {
		f, err := w.faults[i].OpenFile(w.path(i, name), flag, 0o600)
		if err == nil {
			w.open[i] = f
		}
		return err
	})
	if (w.open[0] == nil) != (w.open[1] == nil) {
		w.t.Fatal("one is open")
	}
}

// TestPowerIsLikeMem: a power loss on the real disk leaves what one in memory does, whatever was done before, by
// however many processes.
func TestPowerIsLikeMem(t *testing.T) {
	base := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "vfs"); err == nil { // without a disk a sync costs nothing
		base = shm
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			rt.Fatal(err)
		}
		w := &plugged{t: rt, mem: NewMem(), root: filepath.Join(dir, "root"), side: filepath.Join(dir, "side")}
		if err := (OS{}).MkdirAll(w.root, 0o700); err != nil {
			rt.Fatal(err)
		}
		if err := w.mem.MkdirAll("/m", 0o700); err != nil {
			rt.Fatal(err)
		}
		w.plugIn()
		defer w.close()
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		flags := rapid.SampledFrom([]int{os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL,
			os.O_WRONLY | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_CREATE | os.O_APPEND})
		data := rapid.SliceOfN(rapid.Byte(), 1, 20)
		offset := rapid.Int64Range(0, 30)
		syncDir := func() { w.both("sync folder", func(i int) error { return w.faults[i].SyncDir(w.path(i, "")) }) }
		rt.Repeat(map[string]func(*rapid.T){
			"":     func(*rapid.T) { w.compare("while it runs") },
			"open": func(rt *rapid.T) { w.openOne(names.Draw(rt, "name"), flags.Draw(rt, "flag")) },
			"write": func(rt *rapid.T) {
				p := data.Draw(rt, "p")
				w.let("write", func(f File) error { return second(f.Write(p)) })
			},
			"writeAt": func(rt *rapid.T) {
				p, off := data.Draw(rt, "p"), offset.Draw(rt, "off")
				w.let("writeAt", func(f File) error { return second(f.WriteAt(p, off)) })
			},
			"truncate": func(rt *rapid.T) {
				size := offset.Draw(rt, "size")
				w.cut = true
				w.let("truncate", func(f File) error { return f.Truncate(size) })
			},
			"preallocate": func(rt *rapid.T) {
				size := offset.Draw(rt, "size")
				w.let("preallocate", func(f File) error { return f.Preallocate(size) })
			},
			"sync": func(*rapid.T) { w.let("sync", File.Sync) },
			"failed sync": func(*rapid.T) {
				if w.cut {
					return
				}
				for _, f := range w.faults {
					f.Inject(Rule{Name: "disk", Ops: OpSync, Err: syscall.EIO})
				}
				w.let("sync", File.Sync)
				for _, f := range w.faults {
					f.LiftAll()
				}
			},
			"remove": func(rt *rapid.T) {
				name := names.Draw(rt, "name")
				w.both("remove", func(i int) error { return w.faults[i].Remove(w.path(i, name)) })
			},
			"rename": func(rt *rapid.T) {
				from, to := names.Draw(rt, "from"), names.Draw(rt, "to")
				w.both("rename", func(i int) error { return w.faults[i].Rename(w.path(i, from), w.path(i, to)) })
			},
			"sync folder": func(*rapid.T) { syncDir() },
			"kill": func(*rapid.T) {
				w.close()
				w.mem = w.mem.Killed()
				w.plugIn()
			},
			"lose power": func(rt *rapid.T) {
				w.close()
				w.cut = false
				st, err := readPower(w.side)
				if err == nil {
					err = st.lose(func() bool { return false })
				}
				if err != nil {
					rt.Fatal(err)
				}
				w.mem = w.mem.Crash(rand.New(never{}))
				w.plugIn()
				w.compare("after a power loss")
			},
		})
	})
}

// TestPowerJournalIsBounded: it grows with what is not synced, not with what was written.
func TestPowerJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	root, side := filepath.Join(dir, "root"), filepath.Join(dir, "side")
	power := must(NewPower(root, side))(t)
	if err := power.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	f := must(power.Create(filepath.Join(root, "f")))(t)
	defer f.Close()
	piece := make([]byte, 64<<10)
	for range 200 {
		if _, err := f.WriteAt(piece, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	info := must(os.Stat(powerLogPath(side)))(t)
	if info.Size() > 2*maxPowerLog {
		t.Fatalf("%d bytes", info.Size())
	}
}
