// Package taskcgroup limits tasks by control groups, version 1 or 2.
//
// A Group is a folder below corbel/ in each hierarchy that has something to limit. Processes join it by writing to its
// Joins. All functions are for any goroutine; one Group belongs to one task.
package taskcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/kit/errkind"
)

// Root is where the hierarchies are mounted.
const Root = "/sys/fs/cgroup"

// top is the folder that all groups are below.
const top = "corbel"

// Group is a task's.
type Group struct {
	Root, Name string
	V2         bool
}

// Version is 1 or 2, and 0 where there are none that can be written.
func Version(root string) int {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		if os.MkdirAll(filepath.Join(root, top), 0o755) == nil {
			return 2
		}
		return 0
	}
	if os.MkdirAll(filepath.Join(root, "memory", top), 0o755) == nil {
		return 1
	}
	return 0
}

// v1 are the hierarchies of version 1 that are used.
var v1 = []string{"memory", "cpu", "cpuset", "cpuacct", "pids"}

// controllers are those of version 2 that are used.
const controllers = "+cpu +memory +pids +cpuset"

// Make makes a group with limits.
func Make(root, name string, r *driver.Resources) (*Group, error) {
	g := &Group{Root: root, Name: name}
	switch Version(root) {
	case 0:
		return nil, errkind.New(errkind.Invalid, "this node has no control groups that the agent may write")
	case 2:
		g.V2 = true
	}
	for _, dir := range g.dirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := g.prepare(); err != nil {
		return nil, err
	}
	return g, g.limit(r)
}

// dirs are the group's folders.
func (g *Group) dirs() (list []string) {
	if g.V2 {
		return []string{filepath.Join(g.Root, top, g.Name)}
	}
	for _, h := range v1 {
		if _, err := os.Stat(filepath.Join(g.Root, h)); err == nil {
			list = append(list, filepath.Join(g.Root, h, top, g.Name))
		}
	}
	return list
}

// Joins are the files to which a process writes 0 to join.
func (g *Group) Joins() (list []string) {
	for _, dir := range g.dirs() {
		list = append(list, filepath.Join(dir, "cgroup.procs"))
	}
	return list
}

// prepare makes the controllers available, and the sets of processors not empty.
func (g *Group) prepare() error {
	if g.V2 {
		for _, dir := range []string{g.Root, filepath.Join(g.Root, top)} {
			for one := range strings.FieldsSeq(controllers) { // each alone: one that is not there spoils not the others
				_ = write(filepath.Join(dir, "cgroup.subtree_control"), one)
			}
		}
		return nil
	}
	set := filepath.Join(g.Root, "cpuset")
	for _, dir := range []string{filepath.Join(set, top), filepath.Join(set, top, g.Name)} {
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := write(filepath.Join(dir, name), strings.TrimSpace(string(text))); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// maxPIDs bounds the processes of a task.
const maxPIDs = 16384

// limit sets what the task may use. Memory is a bound, CPU a share: a task may use what others leave.
func (g *Group) limit(r *driver.Resources) error {
	hard, soft := max(r.MemoryMaxMB, r.MemoryMB)<<20, r.MemoryMB<<20
	shares := max(r.CPU, 2)
	var cores []string
	for _, c := range r.Cores {
		cores = append(cores, strconv.Itoa(int(c)))
	}
	set := map[string]string{}
	if g.V2 {
		dir := filepath.Join(g.Root, top, g.Name)
		if hard > 0 {
			set[filepath.Join(dir, "memory.max")] = strconv.FormatInt(hard, 10)
			set[filepath.Join(dir, "memory.low")] = strconv.FormatInt(soft, 10)
			set[filepath.Join(dir, "memory.swap.max")] = "0"
		}
		weight := 1 + (min(shares, 262144)-2)*9999/262142 // as the kernel's own conversion of shares
		set[filepath.Join(dir, "cpu.weight")] = strconv.FormatInt(weight, 10)
		set[filepath.Join(dir, "pids.max")] = strconv.Itoa(maxPIDs)
		if len(cores) > 0 {
			set[filepath.Join(dir, "cpuset.cpus")] = strings.Join(cores, ",")
		}
	} else {
		in := func(h, file string) string { return filepath.Join(g.Root, h, top, g.Name, file) }
		if hard > 0 {
			set[in("memory", "memory.limit_in_bytes")] = strconv.FormatInt(hard, 10)
			set[in("memory", "memory.soft_limit_in_bytes")] = strconv.FormatInt(soft, 10)
		}
		set[in("cpu", "cpu.shares")] = strconv.FormatInt(shares, 10)
		set[in("pids", "pids.max")] = strconv.Itoa(maxPIDs)
		if len(cores) > 0 {
			set[in("cpuset", "cpuset.cpus")] = strings.Join(cores, ",")
		}
	}
	for name, value := range set {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) && !strings.Contains(name, "/memory.limit") &&
			!strings.HasSuffix(name, "/memory.max") {
			continue // a kernel without the controller; memory is never without its limit
		}
		if err := write(name, value); err != nil {
			return fmt.Errorf("limit a task: %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

// OOMKilled reports whether the kernel killed a process of the group for want of memory.
func (g *Group) OOMKilled() bool {
	name := filepath.Join(g.Root, "memory", top, g.Name, "memory.oom_control")
	if g.V2 {
		name = filepath.Join(g.Root, top, g.Name, "memory.events")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// Usage is what the group uses: bytes of memory, and time of processors since it was made.
func (g *Group) Usage() (memory uint64, cpu time.Duration, ok bool) {
	number := func(name string) uint64 {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0
		}
		n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return n
	}
	if !g.V2 {
		memory = number(filepath.Join(g.Root, "memory", top, g.Name, "memory.usage_in_bytes"))
		return memory, time.Duration(number(filepath.Join(g.Root, "cpuacct", top, g.Name, "cpuacct.usage"))), memory > 0
	}
	dir := filepath.Join(g.Root, top, g.Name)
	text, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	for line := range strings.Lines(string(text)) {
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); found {
			micros, _ := strconv.ParseInt(n, 10, 64)
			cpu = time.Duration(micros) * time.Microsecond
		}
	}
	memory = number(filepath.Join(dir, "memory.current"))
	return memory, cpu, memory > 0
}

// Remove deletes the group; its processes must be gone.
func (g *Group) Remove() error {
	var wrong []error
	for _, dir := range g.dirs() {
		err := os.Remove(dir)
		for range 20 { // the kernel lets go of dead processes a moment later
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			time.Sleep(10 * time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}
