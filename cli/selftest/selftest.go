// Package selftest looks whether this host can run Corbel well, before it does: clock, disk, limits, ports and the
// kernel's settings, each with a remedy.
//
// gather measures, and judge decides: it is pure. Nothing is changed but for a file in the data folder, which is
// removed. What cannot be measured is said to be unknown, never good.
package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/kit/sockets"
	"github.com/spf13/cobra"
)

// Grade is how good something is.
type Grade string

// Grades.
const (
	Good    Grade = "ok"
	Weak    Grade = "weak"    // it works, and not well
	Bad     Grade = "bad"     // it will not work
	Unknown Grade = "unknown" // it could not be measured
)

// Finding is one thing that was looked at.
type Finding struct {
	Name   string
	Grade  Grade
	Found  string
	Remedy string `json:",omitempty"`
}

// facts are what was measured; a negative number is unknown.
type facts struct {
	synced      int // the kernel's clock is kept by somebody: 1, 0, or -1
	fsync       []time.Duration
	fsyncErr    error
	files       int64 // soft limit of open files
	locked      int64 // limit of locked memory in bytes; maxLocked is none
	swap        int64 // bytes
	queue       int64 // net.core.somaxconn
	buffer      int64 // net.core.rmem_max
	freePercent int64 // of the file system that the data folder is on, or will be
	taken       []taken
}

// taken is a port that somebody has.
type taken struct{ name, who string }

const maxLocked = 1<<63 - 1

// What is wanted. An fsync is waited for by each write of the cluster: SSDs need a millisecond or two.
const (
	wantFiles   = 65536
	wantQueue   = 1024
	wantBuffer  = 1 << 20
	wantFree    = 15 // per cent
	slowFsync   = 10 * time.Millisecond
	uselessSync = 100 * time.Millisecond
	syncs       = 20
	maxOffset   = 40000 // what a start takes: it leaves room for the highest of the default ports
)

func judge(f *facts) (list []Finding) {
	add := func(name string, g Grade, remedy, format string, args ...any) {
		if g == Good {
			remedy = ""
		}
		list = append(list, Finding{name, g, fmt.Sprintf(format, args...), remedy})
	}
	atLeast := func(name string, has, want int64, remedy string) {
		switch {
		case has < 0:
			add(name, Unknown, "", "not told by this system")
		case has < want:
			add(name, Weak, remedy, "%d, at least %d is wanted", has, want)
		default:
			add(name, Good, "", "%d", has)
		}
	}
	switch f.synced {
	case 1:
		add("clock", Good, "", "kept by a time service")
	case 0:
		add("clock", Weak, "run a time service (apt-get install chrony): leases, certificates and TTLs are by the clock",
			"no time service keeps it")
	default:
		add("clock", Unknown, "", "not told by this system")
	}
	judgeFsync(f, add)
	atLeast("open files", f.files, wantFiles, "LimitNOFILE=262144 in the unit, or ulimit -n 262144: each client is a file")
	switch {
	case f.swap == 0:
		add("swap", Good, "", "none: secrets cannot reach it")
	case f.swap < 0:
		add("swap", Unknown, "", "not told by this system")
	case f.locked == maxLocked:
		add("swap", Good, "", "on, and memory may be locked")
	default:
		add("swap", Weak, "LimitMEMLOCK=infinity in the unit, or swapoff -a: secrets may be written to swap", "on")
	}
	atLeast("accept queue", f.queue, wantQueue, "sysctl -w net.core.somaxconn=4096: bursts of clients are dropped else")
	atLeast("socket buffers", f.buffer, wantBuffer, "sysctl -w net.core.rmem_max=4194304: bursts of DNS are dropped else")
	atLeast("free disk in per cent", f.freePercent, wantFree, "give the data folder a larger disk")
	if len(f.taken) == 0 {
		add("ports", Good, "", "free")
	}
	for _, t := range f.taken {
		add("port "+t.name, Bad, "end what has it, or choose others (--port-offset)", "%s", t.who)
	}
	return list
}

func judgeFsync(f *facts, add func(name string, g Grade, remedy, format string, args ...any)) {
	if f.fsyncErr != nil {
		add("fsync", Bad, "choose a folder that this user may write to (--data-dir)", "%v", f.fsyncErr)
		return
	}
	sorted := slices.Sorted(slices.Values(f.fsync))
	if len(sorted) == 0 {
		add("fsync", Unknown, "", "not measured")
		return
	}
	middle, most := sorted[len(sorted)/2], sorted[len(sorted)-1]
	grade := Good
	if middle > slowFsync {
		grade = Weak
	}
	if middle > uselessSync {
		grade = Bad
	}
	add("fsync", grade, "use a local SSD or NVMe disk: each write of the cluster waits for it", "%s, at most %s of %d",
		middle.Round(10*time.Microsecond), most.Round(10*time.Microsecond), len(sorted))
}

// Command builds self-test.
func Command(e *command.Env, c *cobra.Command) {
	dir, offset, asJSON := "", 0, false
	c.Args = command.Between(0, 0, "flags only")
	c.Long = "Look whether this host can run Corbel well: clock, fsync, limits of files and memory, ports and\n" +
		"settings of the kernel. Exit code 1 where something will not work. Run it as the user of the\nservice.\n\n" +
		"  corbel self-test --data-dir /var/lib/corbel"
	c.Flags().StringVar(&dir, "data-dir", os.TempDir(),
		"folder whose disk is measured; where it is not there yet, the one above it")
	c.Flags().IntVar(&offset, "port-offset", 0, "add this to the ports that are tried")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(*cobra.Command, []string) error {
		if offset < 0 || offset > maxOffset {
			return command.Usagef("--port-offset: %d must be between 0 and %d", offset, maxOffset)
		}
		f := gather(dir)
		f.taken = takenPorts(offset)
		list := judge(f)
		if asJSON {
			if err := command.WriteJSON(e.Out, list, false); err != nil {
				return err
			}
		} else if err := print(e, list); err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(f Finding) bool { return f.Grade == Bad }) {
			return command.ExitCode(1)
		}
		return nil
	}
}

func print(e *command.Env, list []Finding) error {
	for _, f := range list {
		e.Say("%-8s %-22s %s\n", f.Grade, f.Name, f.Found)
		if f.Remedy != "" {
			e.Say("%8s %-22s -> %s\n", "", "", f.Remedy)
		}
	}
	return nil
}

// tried are the default ports of a server.
var tried = []struct {
	network, name string
	port          int
}{{"tcp", "http", 8500}, {"tcp", "dns", 8600}, {"udp", "dns", 8600}, {"tcp", "server", 8300}, {"tcp", "serf_lan", 8301},
	{"udp", "serf_lan", 8301}, {"tcp", "serf_wan", 8302}, {"udp", "serf_wan", 8302}}

// takenPorts tries to have each port for a moment.
func takenPorts(offset int) (list []taken) {
	for _, p := range tried {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(p.port+offset))
		var err error
		if p.network == "udp" {
			var c net.PacketConn
			if c, err = net.ListenPacket("udp", at.String()); err == nil {
				_ = c.Close()
			}
		} else {
			var l net.Listener
			if l, err = net.Listen("tcp", at.String()); err == nil {
				_ = l.Close()
			}
		}
		if err == nil {
			continue
		}
		who := err.Error()
		if h, found := sockets.HolderOf(p.network, at); found && neterr.InUse(err) {
			who = fmt.Sprintf("process %d (%s) has it", h.PID, h.Name)
		}
		list = append(list, taken{fmt.Sprintf("%d/%s (%s)", p.port+offset, p.network, p.name), who})
	}
	return list
}

// nearest is dir, or the nearest folder above it that is there: before its first start a host has no data_dir.
func nearest(dir string) string {
	for {
		up := filepath.Dir(dir)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || up == dir {
			return dir
		}
		dir = up
	}
}

// measureFsync writes and syncs a small file some times, as a log does.
func measureFsync(dir string) (list []time.Duration, err error) {
	f, err := os.CreateTemp(nearest(dir), ".corbel-self-test-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4096)
	for range syncs {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		list = append(list, time.Since(begin))
	}
	return list, nil
}

// setting reads a number of the kernel's; -1 where there is none.
func setting(path string) int64 {
	b, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
