package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/telemetry"
)

// Columns of a block device's file stat: requests that were done, and milliseconds that they took together, for reads,
// writes and flushes, and milliseconds in which any was under way (Documentation/block/stat.rst).
var diskColumns = []struct {
	op             string
	requests, time int
}{{"read", 0, 3}, {"write", 4, 7}, {"flush", 15, 16}}

const diskBusyColumn = 9

// disk counts the requests of the device that the data folder is on: their rate, and time by requests, which is what
// one takes. A folder that is on no device of its own (overlay, tmpfs, a remote file system) has none, which is no gap.
func (h *Host) disk(r *telemetry.Registry) error {
	if h.Dir == "" {
		return nil
	}
	device, err := h.device()
	if err != nil || device == "" {
		return err
	}
	b, err := os.ReadFile(filepath.Join(h.Sys, "dev/block", device, "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fields := strings.Fields(string(b))
	column := func(i int) (float64, error) {
		if i >= len(fields) {
			return 0, nil // an old kernel counts no flushes
		}
		return strconv.ParseFloat(fields[i], 64)
	}
	for _, c := range diskColumns {
		requests, err1 := column(c.requests)
		took, err2 := column(c.time)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("stat of device %s: %w", device, err)
		}
		h.add(r, requests, "host.io.requests", "op", c.op)
		h.add(r, took, "host.io.ms", "op", c.op)
	}
	busy, err := column(diskBusyColumn)
	if err != nil {
		return fmt.Errorf("stat of device %s: %w", device, err)
	}
	h.add(r, busy, "host.io.busy_ms")
	return nil
}

// device is the number of the device that the data folder is on, as the kernel names it; "" for one of its own.
func (h *Host) device() (string, error) {
	info, err := os.Stat(h.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // not made yet
	}
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || unix.Major(st.Dev) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), nil
}
