package validate

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
)

const (
	minRestartInterval    = 5 * time.Second  // NO-9
	minRescheduleInterval = 15 * time.Second // NO-10
	minRescheduleDelay    = 5 * time.Second
	minDiskMB             = 10
)

func group(s scope, g *jobwire.TaskGroup, j *jobwire.Job) {
	kind, count := get(j.Type), get(g.Count)
	s.unless(!strings.Contains(get(g.Name), "\x00"), "the name has NUL")
	s.at("count").unless(count >= 0, "%d is below 0", count)
	if kind == jobs.System || kind == jobs.SysBatch {
		s.at("count").unless(count <= 1, "a %s job runs once on a node: count is 0 or 1, not %d", kind, count)
	}
	rules(s, g.Rules, g.Spreads, kind)
	policies(s, g, kind)
	if u := g.Update; u != nil && get(u.MaxParallel) != 0 {
		update(s.at("update"), u, count, kind)
	}
	scaling(s.at("scaling"), g.Scaling, count)
	s.at("shutdown_delay").unless(span(g.ShutdownDelay) >= 0, "it is below 0")
	s.at("max_run_duration").unless(g.MaxRunDuration == nil || span(g.MaxRunDuration) > 0, "it is not above 0")
	loss(s, g)
	labels := networks(s, g.Networks)
	volumes(s, g)
	tasks(s, g, j, labels)
	services(s, g, labels)
	s.at("ephemeral_disk.size").unless(g.EphemeralDisk == nil || get(g.EphemeralDisk.SizeMB) >= minDiskMB,
		"at least %d MB", minDiskMB)
	logs := 0
	for _, t := range g.Tasks {
		if l := t.LogConfig; l != nil && !get(l.Disabled) {
			logs += clamp(get(l.MaxFiles)) * clamp(get(l.MaxFileSizeMB))
		}
	}
	if d := g.EphemeralDisk; d != nil {
		s.unless(logs < get(d.SizeMB), "log storage (%d MB) must be less than requested disk capacity (%d MB)", logs,
			get(d.SizeMB))
	}
}

// clamp keeps products of what clients bring within an int.
func clamp(n int) int { return min(max(n, 0), math.MaxInt32) }

func policies(s scope, g *jobwire.TaskGroup, kind string) {
	if r := g.RestartPolicy; r != nil {
		restart(s.at("restart"), r)
	}
	if r := g.ReschedulePolicy; r != nil {
		reschedule(s.at("reschedule"), r, kind)
	}
	m := g.Migrate
	if m == nil {
		return
	}
	s = s.at("migrate")
	s.unless(kind == jobs.Service, "only service jobs migrate by a policy, not %s", kind)
	s.at("max_parallel").unless(get(m.MaxParallel) >= 0, "%d is below 0", get(m.MaxParallel))
	s.at("health_check").oneOf(get(m.HealthCheck), "checks", "task_states")
	s.at("min_healthy_time").unless(span(m.MinHealthyTime) >= 0, "it is below 0")
	s.unless(span(m.MinHealthyTime) < span(m.HealthyDeadline), "min_healthy_time %v is not below healthy_deadline %v",
		span(m.MinHealthyTime), span(m.HealthyDeadline))
}

func restart(s scope, r *jobwire.RestartPolicy) {
	s.at("mode").oneOf(get(r.Mode), "fail", "delay")
	s.at("attempts").unless(get(r.Attempts) >= 0, "%d is below 0", get(r.Attempts))
	s.at("delay").unless(span(r.Delay) >= 0, "it is below 0")
	s.unless(get(r.Mode) != "delay" || get(r.Attempts) > 0, "mode delay without attempts would restart at once or never")
	s.at("interval").unless(span(r.Interval) >= minRestartInterval, "%v: at least %v", span(r.Interval),
		minRestartInterval)
	if n := get(r.Attempts); n > 0 && span(r.Delay) > 0 {
		s.unless(span(r.Delay) <= span(r.Interval)/time.Duration(n), "%d attempts with a delay of %v do not fit into %v", n,
			span(r.Delay), span(r.Interval))
	}
}

func reschedule(s scope, r *jobwire.ReschedulePolicy, kind string) {
	attempts, unlimited := get(r.Attempts), get(r.Unlimited)
	if attempts == 0 && !unlimited {
		return // off
	}
	s.unless(kind != jobs.System, "allocations of system jobs are not rescheduled")
	s.at("attempts").unless(attempts >= 0, "%d is below 0", attempts)
	s.unless(!unlimited || attempts == 0 && span(r.Interval) == 0, "unlimited has no attempts and interval")
	s.at("delay").unless(span(r.Delay) >= minRescheduleDelay, "%v: at least %v", span(r.Delay), minRescheduleDelay)
	s.at("delay_function").oneOf(get(r.DelayFunction), "constant", "exponential", "fibonacci")
	if f := get(r.DelayFunction); f == "exponential" || f == "fibonacci" {
		s.at("max_delay").unless(span(r.MaxDelay) >= span(r.Delay), "%v is below the delay %v", span(r.MaxDelay),
			span(r.Delay))
	}
	if !unlimited {
		s.at("interval").unless(span(r.Interval) >= minRescheduleInterval, "%v: at least %v", span(r.Interval),
			minRescheduleInterval)
		s.unless(get(r.DelayFunction) != "constant" || attempts <= 0 ||
			span(r.Delay) <= span(r.Interval)/time.Duration(attempts),
			"%d attempts with a delay of %v do not fit into %v", attempts, span(r.Delay), span(r.Interval))
	}
}

func update(s scope, u *jobwire.UpdateStrategy, count int, kind string) {
	s.unless(kind == jobs.Service || kind == jobs.System, "%s jobs have no updates in steps", kind)
	s.at("max_parallel").unless(get(u.MaxParallel) >= 0, "%d is below 0", get(u.MaxParallel))
	s.at("canary").unless(get(u.Canary) >= 0, "%d is below 0", get(u.Canary))
	s.at("health_check").oneOf(get(u.HealthCheck), "checks", "task_states", "manual")
	s.at("min_healthy_time").unless(span(u.MinHealthyTime) >= 0, "it is below 0")
	s.at("healthy_deadline").unless(span(u.HealthyDeadline) > 0, "it is not above 0")
	s.at("progress_deadline").unless(span(u.ProgressDeadline) >= 0, "it is below 0")
	s.at("stagger").unless(span(u.Stagger) > 0, "it is not above 0")
	s.unless(span(u.MinHealthyTime) < span(u.HealthyDeadline), "min_healthy_time %v is not below healthy_deadline %v",
		span(u.MinHealthyTime), span(u.HealthyDeadline))
	s.unless(span(u.ProgressDeadline) == 0 || span(u.HealthyDeadline) < span(u.ProgressDeadline),
		"healthy_deadline %v is not below progress_deadline %v", span(u.HealthyDeadline), span(u.ProgressDeadline))
	if get(u.AutoPromote) && get(u.Canary) == 0 {
		s.warn("auto_promote has nothing to promote: set canary")
	}
	if get(u.MaxParallel) > max(count, 1) {
		s.warn("max_parallel %d is more than the count %d", get(u.MaxParallel), count)
	}
	if get(u.Canary) > count {
		s.warn("canary %d is more than the count %d", get(u.Canary), count)
	}
}

func scaling(s scope, p *jobwire.ScalingPolicy, count int) {
	if p == nil {
		return
	}
	s.at("min").unless(get(p.Min) >= 0, "%d is below 0", get(p.Min))
	s.at("max").unless(p.Max != nil, "it is missing")
	if p.Max == nil {
		return
	}
	s.unless(get(p.Min) <= *p.Max, "min %d is above max %d", get(p.Min), *p.Max)
	s.unless(int64(count) >= get(p.Min) && int64(count) <= *p.Max, "count %d is not from min %d to max %d", count,
		get(p.Min), *p.Max)
}

func loss(s scope, g *jobwire.TaskGroup) {
	old := g.MaxClientDisconnect != nil || g.StopAfterClientDisconnect != nil || g.PreventRescheduleOnLost != nil
	if old {
		s.warn("max_client_disconnect, stop_after_client_disconnect and prevent_reschedule_on_lost are deprecated: " +
			"use disconnect")
	}
	s.unless(g.MaxClientDisconnect == nil || g.StopAfterClientDisconnect == nil,
		"max_client_disconnect and stop_after_client_disconnect exclude each other")
	s.at("max_client_disconnect").unless(span(g.MaxClientDisconnect) >= 0, "it is below 0")
	s.at("stop_after_client_disconnect").unless(span(g.StopAfterClientDisconnect) >= 0, "it is below 0")
	d := g.Disconnect
	if d == nil {
		return
	}
	s = s.at("disconnect")
	s.unless(!old, "use disconnect, or the older fields, not both")
	s.at("lost_after").unless(span(d.LostAfter) >= 0, "it is below 0")
	s.at("stop_on_client_after").unless(span(d.StopOnClientAfter) >= 0, "it is below 0")
	s.unless(d.LostAfter == nil || d.StopOnClientAfter == nil, "lost_after and stop_on_client_after exclude each other")
	s.at("reconcile").oneOf(get(d.Reconcile), "best_score", "keep_original", "keep_replacement", "longest_running")
}

// hostname is what may be one, before ${...} in it are replaced; each of those counts as one character. A counted
// repetition would take long to compile, at each start of the program.
var (
	hostname     = regexp.MustCompile(`^(?:[A-Za-z0-9._-]|\$\{[^}]*\})*$`)
	hostnamePart = regexp.MustCompile(`\$\{[^}]*\}`)
)

func isHostname(s string) bool {
	return hostname.MatchString(s) && len(hostnamePart.ReplaceAllLiteralString(s, "x")) <= 253
}

// networks returns the labels of the ports.
func networks(s scope, list []*jobwire.NetworkResource) map[string]bool {
	labels, static := map[string]bool{}, map[string]bool{}
	s.unless(len(list) <= 1, "a group has one network at most")
	for _, n := range list {
		s := s.at("network")
		if !strings.HasPrefix(n.Mode, "cni/") {
			s.at("mode").oneOf(n.Mode, "", "host", "bridge", "none")
		}
		s.at("mode").unless(n.Mode != "cni/", "the name of a network follows cni/")
		s.at("hostname").unless(isHostname(n.Hostname), "%q is no name of a host", n.Hostname)
		if d := n.DNS; d != nil {
			for _, list := range [][]string{d.Servers, d.Searches, d.Options} {
				for _, word := range list {
					s.at("dns").unless(word != "" && !strings.ContainsAny(word, " \t\r\n"), "%q is no single word", word)
				}
			}
		}
		for _, p := range slices.Concat(n.ReservedPorts, n.DynamicPorts) {
			at := s.at("port." + p.Label)
			at.unless(p.Label != "", "a port has no label")
			at.unless(!labels[p.Label], "two ports have this label")
			at.at("static").unless(p.Value >= 0 && p.Value <= math.MaxUint16, "%d is no port", p.Value)
			at.at("to").unless(p.To >= -1 && p.To <= math.MaxUint16, "%d is no port", p.To)
			place := fmt.Sprint(p.HostNetwork, "/", p.Value)
			at.unless(p.Value == 0 || p.IgnoreCollision || !static[place], "two ports are %d", p.Value)
			labels[p.Label], static[place] = true, true
		}
	}
	return labels
}

func volumes(s scope, g *jobwire.TaskGroup) {
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		v, at := g.Volumes[name], s.at("volume."+name)
		at.at("type").oneOf(v.Type, "host", "csi")
		at.at("source").unless(v.Source != "", "it is missing")
		if v.Type == "csi" {
			at.at("access_mode").unless(v.AccessMode != "", "a csi volume has one")
			at.at("attachment_mode").unless(v.AttachmentMode != "", "a csi volume has one")
		} else {
			at.unless(v.AccessMode == "" && v.AttachmentMode == "" || v.Sticky || v.Type != "host",
				"a host volume has no access_mode and attachment_mode")
		}
		at.at("per_alloc").unless(!v.PerAlloc || g.Update == nil || get(g.Update.Canary) == 0,
			"a volume of each allocation cannot be had twice: use no canaries")
	}
}
