package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/telemetry"
)

// maxProxies bounds the proxies of this host whose quotas are followed.
const maxProxies = 64

// throttled is in which part of the scheduler's periods a quota stopped this process, and the Envoys of this host.
func (h *Host) throttled(r *telemetry.Registry, now time.Time) error {
	took := now.Sub(h.quotas)
	h.quotas = now
	self, err := h.groupOf("self")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(self, "cpu.stat")); err != nil {
		return fmt.Errorf("whether a CPU quota stops this process cannot be seen: %w", err)
	}
	former := h.limited
	h.limited = map[string]bool{}
	for _, g := range append([]group{{"self", self}}, h.envoys...) {
		h.limited[g.who] = true
		h.used(r, g, took)
		periods, stopped, err := h.quotaOf(g.path)
		if err != nil {
			if g.who == "self" || former[g.who] { // no quota is set any more, or the group is gone
				r.Gauge("host.cgroup.throttled", "who", g.who).Set(0)
			}
			continue
		}
		all, ok1 := h.grew("periods "+g.path, periods)
		bad, ok2 := h.grew("throttled "+g.path, stopped)
		if ok1 && ok2 {
			r.Gauge("host.cgroup.throttled", "who", g.who).Set(bad / max(all, 1))
		}
	}
	for who := range former {
		if !h.limited[who] { // a proxy that has ended is not throttled any more
			r.Gauge("host.cgroup.throttled", "who", who).Set(0)
			r.Gauge("host.cgroup.cpu", "who", who).Set(0)
		}
	}
	return nil
}

// used is how many cores a group uses, and may use.
func (h *Host) used(r *telemetry.Registry, g group, took time.Duration) {
	b, err := os.ReadFile(filepath.Join(g.path, "cpu.stat"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		text, is := strings.CutPrefix(line, "usage_usec ")
		if !is {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if micros, known := h.grew("cpu "+g.path, v); err == nil && known && took > 0 {
			r.Gauge("host.cgroup.cpu", "who", g.who).Set(micros / took.Seconds() / 1e6)
		}
	}
	if b, err = os.ReadFile(filepath.Join(g.path, "cpu.max")); err != nil {
		return
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	most, err1 := strconv.ParseFloat(quota, 64)
	each, err2 := strconv.ParseFloat(period, 64)
	if err1 == nil && err2 == nil && each > 0 { // else it is "max"
		r.Gauge("host.cgroup.quota", "who", g.who).Set(most / each)
	}
}

// groupOf is the folder of a process's CPU control group, in whichever version is mounted.
func (h *Host) groupOf(pid string) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.Proc, pid, "cgroup"))
	if err != nil {
		return "", err
	}
	unified := ""
	for line := range strings.Lines(strings.TrimSpace(string(b))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[1] == "" {
			unified = parts[2]
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller == "cpu" {
				return filepath.Join(h.Sys, "fs/cgroup", parts[1], parts[2]), nil
			}
		}
	}
	if unified == "" {
		return "", errors.New("this process is in no CPU control group")
	}
	return filepath.Join(h.Sys, "fs/cgroup", unified), nil
}

// quotaOf reads cpu.stat of a group, and of its parents where the group itself has no quota.
func (h *Host) quotaOf(path string) (periods, throttled float64, err error) {
	root := filepath.Join(h.Sys, "fs/cgroup")
	for ; strings.HasPrefix(path, root); path = filepath.Dir(path) {
		b, ferr := os.ReadFile(filepath.Join(path, "cpu.stat"))
		if ferr != nil {
			err = ferr
			continue
		}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			v, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "nr_periods":
				periods = v
			case "nr_throttled":
				throttled = v
			}
		}
		if periods > 0 {
			return periods, throttled, nil
		}
	}
	if err == nil {
		err = errors.New("no quota")
	}
	return 0, 0, err
}

// proxies are the Envoys of this host with their groups, named by what --service-node or --service-cluster calls them.
func (h *Host) proxies() []group {
	entries, err := os.ReadDir(h.Proc)
	if err != nil {
		return nil
	}
	var out []group
	for _, e := range entries {
		pid := e.Name()
		if len(out) >= maxProxies || pid[0] < '0' || pid[0] > '9' {
			continue
		}
		name, err := os.ReadFile(filepath.Join(h.Proc, pid, "comm"))
		if err != nil || !strings.HasPrefix(string(name), "envoy") {
			continue
		}
		path, err := h.groupOf(pid)
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(h.Proc, pid, "cmdline"))
		out = append(out, group{proxyName(string(line), pid), path})
	}
	return out
}

// proxyName is how a command line names its proxy.
func proxyName(line, pid string) string {
	words := strings.Split(line, "\x00")
	for _, flag := range []string{"--service-node", "--service-cluster"} {
		for i, w := range words {
			if v, ok := strings.CutPrefix(w, flag+"="); ok {
				return v
			}
			if w == flag && i+1 < len(words) {
				return words[i+1]
			}
		}
	}
	return "envoy " + pid
}
