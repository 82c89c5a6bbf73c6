package node

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/sockets"
	"corbel.dev/corbel/kit/version"
)

// info tells about the process over the API.
type info struct{ p *localAgent }

// DebugConfig implements agentrows.AgentInfo.
func (i info) DebugConfig() map[string]any { return i.p.debugConfig() }

// Stats implements agentrows.AgentInfo with the sections and names that tools read.
func (i info) Stats() map[string]map[string]string {
	p := i.p
	view := p.local.View()
	ttls := 0
	for _, c := range view.Checks {
		if c.Definition.TTL > 0 {
			ttls++
		}
	}
	stats := map[string]map[string]string{
		"agent": {"checks": strconv.Itoa(len(view.Checks)), "services": strconv.Itoa(len(view.Services)),
			"check_ttls": strconv.Itoa(ttls), "check_monitors": strconv.Itoa(len(view.Checks) - ttls)},
		"runtime": {"arch": runtime.GOARCH, "os": runtime.GOOS, "version": runtime.Version(),
			"cpu_count": strconv.Itoa(runtime.NumCPU()), "max_procs": strconv.Itoa(runtime.GOMAXPROCS(0)),
			"goroutines": strconv.Itoa(runtime.NumGoroutine())},
		"build": {"version": version.Contract, "revision": version.Of().Revision, "prerelease": "",
			"version_metadata": "corbel" + version.Number},
		"serf_lan": gossipStats(p.Pool),
	}
	stats["consul"] = map[string]string{"server": strconv.FormatBool(p.Cfg.Server), "acl": "disabled"}
	if p.Cfg.ACL.Enabled && !p.Cfg.Dev {
		stats["consul"]["acl"] = "enabled"
	}
	p.role.addStats(stats)
	return stats
}

func gossipStats(pool *member.Pool) map[string]string {
	counts := map[member.Status]int{}
	for _, m := range pool.Members(member.ActShow) {
		counts[m.Status]++
	}
	total := 0
	for _, n := range slices.Collect(maps.Values(counts)) {
		total += n
	}
	return map[string]string{"members": strconv.Itoa(total), "failed": strconv.Itoa(counts[member.Failed]),
		"left": strconv.Itoa(counts[member.Left]), "health_score": strconv.Itoa(pool.HealthScore()),
		"encrypted": strconv.FormatBool(pool.Encrypted())}
}

// Reload implements agentrows.AgentInfo.
func (i info) Reload(ctx context.Context) error {
	if i.p.reload == nil {
		return errors.New("this process was not told how to read its configuration again: send it SIGHUP")
	}
	return i.p.reload(ctx)
}

// Leave implements agentrows.AgentInfo: the process drains, leaves and ends. Who asked may go away
// meanwhile: a leave that has begun is finished.
func (i info) Leave(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	i.p.Drain(ctx, true)
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	err := i.p.Leave(ctx)
	select {
	case i.p.left <- struct{}{}:
	default: // ending already
	}
	return err
}

// connections implements agentrows.Connections.
func connections(ports []uint16, quiet time.Duration) (open, busy int, err error) {
	list, err := sockets.Established(ports...)
	for _, c := range list {
		open++
		if c.Busy(quiet) {
			busy++
		}
	}
	return open, busy, err
}
