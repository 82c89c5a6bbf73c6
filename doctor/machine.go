package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// fsyncBound is how long an append with its sync may take on average on this machine.
func (v *view) fsyncBound() float64 {
	if v.Floors == nil || v.Floors.FsyncMillis <= 0 {
		return fsyncLimit
	}
	return max(fsyncLimit/2, min(fsyncFloors*v.Floors.FsyncMillis, 5*fsyncLimit))
}

// diskReach is whom a disk slows: its own member, and everybody whose writes go through a group that it leads.
func (v *view) diskReach(group string) []reach {
	out := []reach{{member: v.Member, plane: group}}
	for _, lead := range v.leads() {
		if lead == group {
			out = append(out, reach{plane: group})
		}
	}
	return out
}

// diskStalled finds a write that does not return.
func diskStalled(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("group.write.inflight_ms") {
		group := s.Label("group")
		stalls := v.one("group.stalls", "group", group)
		standing := s.Now.Value >= stallLimit
		again := stalls != nil && stalls.Now.Sum >= 1
		if !standing && !again {
			continue
		}
		f := Finding{Severity: Critical,
			cause: cause{layer: layerMachine, explains: v.diskReach(group)},
			Plane: group, Stage: "fsync", Culprit: "disk of " + v.Member,
			subject: "disk",
			Since:   s.Since, Do: []string{
				"Check the device: dmesg, its SMART values, the volume's throttling, its provider's status page.",
				"Take this member out until the disk is repaired: corbel operator raft transfer-leader, then stop " +
					"it; the others continue.",
			}}
		role := "a follower"
		if one := v.one("group.leader", "group", group); one != nil && one.Now.Value > 0 {
			role = "the leader"
		}
		if standing {
			f.Since = v.ago(s.Now.Value)
			f.Title = fmt.Sprintf("%s: a disk write of group %s has not completed for %s", v.Member, group,
				millis(s.Now.Value))
			f.Evidence = append(f.Evidence, Line{Key: s.Key(),
				Text: fmt.Sprintf("one write has been in flight for %s; %s is %s of the group", millis(s.Now.Value),
					v.Member, role)})
		} else {
			f.Title = fmt.Sprintf("%s: its disk stalled %.0f times in %s (group %s)", v.Member, stalls.Now.Sum, v.Window, group)
			f.Evidence = append(f.Evidence, Line{Key: stalls.Key(), Text: fmt.Sprintf("%.0f stalls in %s; %s is %s of the group",
				stalls.Now.Sum, v.Window, v.Member, role)})
			if f.Since.IsZero() {
				f.Since = stalls.Since
			}
		}
		f.Evidence = append(f.Evidence, v.appendLine(group)...)
		out = append(out, f)
	}
	return out
}

func (v *view) appendLine(group string) []Line {
	s := v.one("group.append", "group", group)
	if s == nil || s.Now.Count == 0 {
		return nil
	}
	floor := ""
	if v.Floors != nil && v.Floors.FsyncMillis > 0 {
		floor = fmt.Sprintf("; at rest, a sync takes %s on this machine", millis(v.Floors.FsyncMillis))
	}
	return []Line{{Key: s.Key(), Text: fmt.Sprintf("appends including the sync take %s on average and %s at the 99th "+
		"percentile%s%s",
		millis(s.Now.Mean), millis(s.Now.P99), usually(s), floor)}}
}

// diskSlow finds a disk whose syncs take long.
func diskSlow(v *view) []Finding {
	var out []Finding
	if len(diskStalled(v)) > 0 {
		return nil // which says more
	}
	for _, s := range v.all("group.append") {
		bound := v.fsyncBound()
		if s.Now.Count < fewest || s.Now.Mean <= bound {
			continue
		}
		group := s.Label("group")
		if v.cpuScarce() && s.Now.Mean < 3*bound {
			continue // it waits for the CPU, not for the disk
		}
		f := Finding{Severity: Warning,
			cause: cause{layer: layerMachine, explains: v.diskReach(group)},
			Plane: group, Stage: "fsync", Culprit: "disk of " + v.Member,
			subject: "disk", Since: s.Since,
			Title:    fmt.Sprintf("%s: its disk is slow: a sync takes %s on average", v.Member, millis(s.Now.Mean)),
			Evidence: v.appendLine(group),
			Do: []string{
				"Find out what else writes to this device (iostat -x 1, PSI io), and whether its provider limits it.",
				"Move the data directory to its own disk, or move leadership to another member: corbel operator " +
					"raft transfer-leader.",
			}}
		if io, ok := v.value("host.psi", "resource", "io", "kind", "full"); ok {
			f.Evidence = append(f.Evidence, Line{Key: "host.psi",
				Text: fmt.Sprintf("for %.0f %% of the last ten seconds, all work on this machine waited for its disks", io)})
		}
		if s.Now.Mean > 10*bound {
			f.Severity = Critical
		}
		out = append(out, f)
	}
	return out
}

// cpuThrottled finds Corbel's own CPU quota.
func cpuThrottled(v *view) []Finding {
	s := v.one("host.cgroup.throttled", "who", "self")
	if s == nil || s.Now.Value < 0.1 {
		return nil
	}
	f := Finding{Severity: Warning,
		cause:   cause{layer: layerMachine, explains: []reach{{member: v.Member}}},
		Culprit: "CPU quota", Since: s.Since,
		Title: fmt.Sprintf("%s: throttled by its CPU quota in %.0f %% of the periods", v.Member, 100*s.Now.Value),
		Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("throttled in %.0f %% of the scheduler's periods%s",
			100*s.Now.Value, usually(s))}},
		Do: []string{"Raise the CPU limit of Corbel's container or unit (cpu.max, CPUQuota=), or remove it: use shares " +
			"instead of a quota."}}
	for _, lead := range v.leads() {
		f.explains = append(f.explains, reach{plane: lead})
	}
	return []Finding{f}
}

// proxyThrottled finds Envoys of this host that their CPU quota stops.
func proxyThrottled(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("host.cgroup.throttled") {
		who := s.Label("who")
		if who == "self" || s.Now.Value < 0.1 {
			continue
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerMachine, explains: []reach{{member: v.Member, plane: "mesh"}}},
			Plane: "mesh", Culprit: "CPU quota of " + who,
			subject: who, Since: s.Since,
			Title: fmt.Sprintf(
				"%s: the proxy %s is throttled by its CPU quota in %.0f %% of the periods: requests through it wait", v.Member, who,
				100*s.Now.Value),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("the cgroup of %s was throttled in %.0f %% of the scheduler's "+
				"periods; average use hides this: a burst spends the quota at the start of a period",
				who, 100*s.Now.Value)}},
			Do: []string{
				"Raise or remove the CPU limit of the proxy's container (cpu.max); a proxy needs bursts, not an average.",
				"Start Envoy with --concurrency no higher than the cores of its quota.",
			}})
		f := &out[len(out)-1]
		if cpu := v.one("host.cgroup.cpu", "who", who); cpu != nil {
			text := fmt.Sprintf("%s used %.2f cores%s", who, cpu.Now.Value, usually(cpu))
			if most, ok := v.value("host.cgroup.quota", "who", who); ok {
				text = fmt.Sprintf("%s used %.2f of the %.2f cores that it may%s", who, cpu.Now.Value, most, usually(cpu))
			}
			f.Evidence = append(f.Evidence, Line{Key: cpu.Key(), Text: text})
		}
	}
	return out
}

// packetLoss finds peers towards which segments are sent again.
func packetLoss(v *view) []Finding {
	var bad []string
	var worst *Series
	most, healthy := 0.0, 0
	for _, s := range v.all("host.tcp.retransmits") {
		sent := v.one("host.tcp.segments", "peer", s.Label("peer"))
		if sent == nil || sent.Now.Sum < 50 {
			continue
		}
		part := s.Now.Sum / sent.Now.Sum
		if part < 0.01 || s.Now.Sum < 5 {
			healthy++
			continue
		}
		bad = append(bad, s.Label("peer"))
		if part > most {
			most, worst = part, s
		}
	}
	if worst == nil {
		return v.connectionsReset()
	}
	f := Finding{Severity: Warning,
		cause: cause{layer: layerMachine},
		Stage: "network", Culprit: "network to " + some(bad, 3),
		subject: "loss", Since: worst.Since,
		Title: fmt.Sprintf("%s: packets are lost on the path to %s: %.1f %% of the segments are retransmitted", v.Member,
			some(bad, 3), 100*most),
		Evidence: []Line{{Key: worst.Key(), Text: fmt.Sprintf("%.0f segments to %s retransmitted in %s (%.1f %%)",
			worst.Now.Sum, worst.Label("peer"), v.Window, 100*most)},
			{Text: fmt.Sprintf("%d peers are affected, %d others are not", len(bad), healthy)}},
		Do: []string{
			"Compare the affected hosts: same rack, switch, zone or driver? mtr or ping -f to one of them shows the loss.",
			"Check the NIC counters of both hosts (ethtool -S) for drops and exceeded allowances.",
		}}
	f.Evidence = append(f.Evidence, v.servicesLose()...)
	for _, peer := range bad {
		f.explains = append(f.explains, reach{member: peer})
	}
	f.explains = append(f.explains, reach{member: v.Member, stage: "replicate"}, reach{member: v.Member, stage: "network"},
		reach{member: v.Member, stage: "storage"})
	return []Finding{f}
}

// resetsMost is how many connections of one peer may break in a window: a restart breaks one or two.
const resetsMost = 5

// connectionsReset finds connections that somebody between the hosts ends.
func (v *view) connectionsReset() []Finding {
	var worst *Series
	for _, s := range v.all("host.tcp.peer_resets") {
		if s.Now.Sum >= resetsMost && (worst == nil || s.Now.Sum > worst.Now.Sum) {
			worst = s
		}
	}
	if worst == nil {
		return nil
	}
	peer := v.nameOf(worst.Label("peer"))
	ends := []string{v.Member, peer}
	slices.Sort(ends) // both ends see it
	between := "network between " + ends[0] + " and " + ends[1]
	return []Finding{{Severity: Warning,
		cause: cause{layer: layerMachine, explains: []reach{{member: peer}, {member: v.Member, stage: "network"}}},
		Stage: "network", Culprit: between, subject: everywhere +
			"reset:" + between, Since: worst.Since,
		Title:    fmt.Sprintf("%s: connections with %s are being reset, %.1f per second", v.Member, peer, worst.Now.Rate),
		Evidence: []Line{{Key: worst.Key(), Text: fmt.Sprintf("%.0f connections were reset in %s", worst.Now.Sum, v.Window)}},
		Do: []string{"Look for a middlebox, firewall or idle timeout between these hosts: neither side's process " +
			"closed them."}}}
}

// nameOf is the member whose address an IP is, the IP where that is nobody, or several.
func (v *view) nameOf(ip string) string {
	name := ""
	for i := range v.cluster.Members {
		m := &v.cluster.Members[i]
		if m.Cluster != v.Cluster || !slices.ContainsFunc(m.Addresses,
			func(a string) bool { return strings.HasPrefix(a, ip+":") }) {
			continue
		}
		if name != "" {
			return ip
		}
		name = m.Member
	}
	return cmp.Or(name, ip)
}

// some lists the first few names.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// allowanceExceeded finds limits of a cloud's network that drop or queue packets: the driver counts them, nothing
// else shows them.
func allowanceExceeded(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("host.nic.exceeded") {
		if s.Now.Sum < 1 {
			continue
		}
		what, nic := s.Label("allowance"), s.Label("nic")
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerMachine,
				explains: []reach{{member: v.Member, stage: "replicate"}, {member: v.Member, stage: "write"},
					{member: v.Member, stage: "network"}, {member: v.Member, stage: "storage"}}},
			Stage: "network", Culprit: "allowance " + what +
				" of " + nic, subject: nic + what, Since: s.Since,
			Title: fmt.Sprintf("%s: %s exceeds the provider's allowance (%s): packets are queued or dropped outside this host",
				v.Member, nic, what),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s rose by %.0f in %s", what, s.Now.Sum, v.Window)},
				{Text: "the allowance applies to bursts of milliseconds: the one-minute average can be far below it"}},
			Do: []string{"Use an instance type with a larger allowance, or spread the traffic of this host over more " +
				"hosts.", "Find the sender: a backup, a snapshot or an image pull next to the service."}})
		f := &out[len(out)-1]
		f.Evidence = append(append(f.Evidence, v.scheduler(nic)...), v.servicesLose()...)
	}
	return out
}

// scheduler says what the traffic scheduler of a card dropped, and put back because the card was busy.
func (v *view) scheduler(nic string) (lines []Line) {
	for _, k := range [...]struct{ name, what string }{{"host.qdisc.dropped", "dropped"},
		{"host.qdisc.requeued", "put back, since the card was busy,"}} {
		if s := v.one(k.name, "nic", nic); s != nil && s.Now.Sum >= 1 {
			lines = append(lines, Line{Key: s.Key(), Text: fmt.Sprintf("the traffic scheduler of %s %s %.0f packets in %s", nic,
				k.what, s.Now.Sum, v.Window)})
		}
	}
	return lines
}

// servicesLose names the services of this host whose segments are sent again, the worst first.
func (v *view) servicesLose() (lines []Line) {
	type loser struct {
		line Line
		part float64
	}
	var all []loser
	for _, s := range v.all("host.tcp.service_retransmits") {
		sent := v.one("host.tcp.service_segments", "service", s.Label("service"))
		if sent == nil || sent.Now.Sum < 50 || s.Now.Sum < 5 {
			continue
		}
		part := s.Now.Sum / sent.Now.Sum
		all = append(all, loser{Line{Key: s.Key(), Text: fmt.Sprintf("service %s: %.0f of its %.0f segments were "+
			"retransmitted (%.1f %%)", s.Label("service"), s.Now.Sum, sent.Now.Sum, 100*part)}, part})
	}
	slices.SortStableFunc(all, func(a, b loser) int { return -cmp.Compare(a.part, b.part) })
	for _, l := range all[:min(len(all), 3)] {
		lines = append(lines, l.line)
	}
	return lines
}

// oneTransmitQueue finds a device with several queues that sends nearly all through one.
func oneTransmitQueue(v *view) []Finding {
	type device struct {
		total, most float64
		queues      int
		busiest     *Series
	}
	devices := map[string]*device{}
	var order []string
	for _, s := range v.all("host.nic.queue_packets") {
		nic := s.Label("nic")
		d := devices[nic]
		if d == nil {
			d = &device{}
			devices[nic], order = d, append(order, nic)
		}
		d.queues++
		d.total += s.Now.Rate
		if s.Now.Rate > d.most {
			d.most, d.busiest = s.Now.Rate, s
		}
	}
	var out []Finding
	for _, nic := range order {
		d := devices[nic]
		// Below some thousand packets a second one queue is as good as eight.
		if d.queues < 2 || d.total < 5000 || d.most/d.total < 0.8 {
			continue
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerMachine,
				explains: []reach{{member: v.Member, stage: "write"}, {member: v.Member, stage: "network"},
					{member: v.Member, stage: "replicate"}}},
			Stage: "network", Culprit: "transmit queue " +
				d.busiest.Label("queue") + " of " + nic, subject: nic, Since: d.busiest.Since,
			Title: fmt.Sprintf("%s: one of %d transmit queues of %s carries %.0f %% of the packets", v.Member, d.queues, nic,
				100*d.most/d.total),
			Evidence: []Line{{Key: d.busiest.Key(),
				Text: fmt.Sprintf("queue %s sends %.0f of %.0f packets per second; one core does all the work",
					d.busiest.Label("queue"), d.most, d.total)}},
			Do: []string{"Spread the queues: set XPS (/sys/class/net/" + nic +
				"/queues/tx-*/xps_cpus), or the driver's flow hash; make sure that irqbalance runs."}})
		f := &out[len(out)-1]
		f.Evidence = append(append(f.Evidence, v.scheduler(nic)...), v.servicesLose()...)
	}
	return out
}

// packetsDropped finds queues of the kernel that overflow on this host.
func packetsDropped(v *view) []Finding {
	var out []Finding
	for _, k := range []struct{ name, what, do string }{
		{"host.net.listen_overflows", "connections are refused because a listen queue is full",
			"Raise net.core.somaxconn, and find the listener: ss -ltn shows a full Recv-Q."},
		{"host.softnet.dropped", "packets are dropped because the kernel's backlog is full",
			"Raise net.core.netdev_max_backlog and net.core.netdev_budget, or spread interrupts over more cores."},
		{"host.nic.dropped", "the network card drops packets because its ring is full",
			"Enlarge the ring (ethtool -G), and spread its interrupts over more cores."},
	} {
		for _, s := range v.all(k.name) {
			if s.Now.Sum < 10 {
				continue
			}
			out = append(out, Finding{Severity: Warning,
				cause: cause{layer: layerMachine,
					explains: []reach{{member: v.Member, stage: "network"}, {member: v.Member, stage: "queue"}}},
				Stage:   "network",
				Culprit: strings.TrimPrefix(k.name, "host.") + " of " + v.Member, subject: s.Key(), Since: s.Since,
				Title:    fmt.Sprintf("%s: %s", v.Member, k.what),
				Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s rose by %.0f in %s", s.Key(), s.Now.Sum, v.Window)}},
				Do:       []string{k.do}})
		}
	}
	return out
}

// conntrackFull finds a full table of connections.
func conntrackFull(v *view) []Finding {
	used, ok := v.value("host.conntrack.used")
	if !ok || used < 0.95 {
		return nil
	}
	return []Finding{{Severity: Critical,
		cause: cause{layer: layerMachine, explains: []reach{{member: v.Member}}},
		Stage: "network", Culprit: "conntrack table of " + v.Member,
		Since: v.one("host.conntrack.used").Since,
		Title: fmt.Sprintf("%s: the connection tracking table is %.0f %% full: new connections are dropped",
			v.Member, 100*used),
		Evidence: []Line{{Key: "host.conntrack.used",
			Text: fmt.Sprintf("%.1f %% of net.netfilter.nf_conntrack_max are in use", 100*used)}},
		Do: []string{"Raise net.netfilter.nf_conntrack_max, or exempt Corbel's ports from tracking (notrack)."}}}
}

// clockSkew finds a member whose clock is far from those of most others.
func clockSkew(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("peer.clock_offset_ms") {
		off := math.Abs(s.Now.Value)
		if off < offsetLimit {
			continue
		}
		peer := s.Label("peer")
		who := peer
		if v.offsetBy() > 1 {
			who = v.Member // it differs from several: it is this one
		}
		out = append(out, Finding{Severity: Warning,
			cause:   cause{layer: layerMachine},
			Culprit: "clock of " + who,
			subject: "cluster:clock:" + who, Since: s.Since,
			Title:    fmt.Sprintf("the clock of %s is %s off", who, millis(off)),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%s and %s differ by %s", v.Member, peer, millis(off))}},
			Do: []string{"Check that its time service runs and has a source: chronyc tracking, timedatectl.",
				"Until then, TTLs, certificates and tokens expire by that clock; Corbel's leases and elections do not " +
					"depend on it."}})
	}
	return out
}

// offsetBy is from how many peers this member's clock differs by more than the limit.
func (v *view) offsetBy() (n int) {
	for _, s := range v.all("peer.clock_offset_ms") {
		if math.Abs(s.Now.Value) >= offsetLimit {
			n++
		}
	}
	return n
}

// descriptorsExhausted finds a process that has no descriptors or ports left.
func descriptorsExhausted(v *view) []Finding {
	var out []Finding
	for _, k := range []struct{ name, what, do string }{
		{"host.fd.used", "file descriptors", "Raise LimitNOFILE= of the unit (or ulimit -n), and look for a client that " +
			"keeps opening connections: corbel doctor --json names the busiest."},
		{"host.ports.used", "local ports", "Widen net.ipv4.ip_local_port_range, and have clients reuse connections."},
	} {
		s := v.one(k.name)
		if s == nil || s.Now.Value < 0.9 {
			continue
		}
		f := Finding{Severity: Warning,
			cause: cause{layer: layerMachine, explains: []reach{{member: v.Member}}},
			Stage: "queue", Culprit: k.what + " of " + v.Member,
			subject: k.name, Since: s.Since,
			Title:    fmt.Sprintf("%s: %.0f %% of its %s are in use", v.Member, 100*s.Now.Value, k.what),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.1f %% of the limit", 100*s.Now.Value)}},
			Do:       []string{k.do}}
		if failed := v.rate("net.accept_errors"); failed > 0 {
			f.Evidence = append(f.Evidence, Line{Key: "net.accept_errors",
				Text: fmt.Sprintf("%.1f connections per second could not be accepted", failed)})
			f.Severity = Critical
		}
		if s.Now.Value > 0.98 {
			f.Severity = Critical
		}
		out = append(out, f)
	}
	return out
}

// requestMemoryFull finds a process that refuses requests since those under way hold all the bytes that they may.
func requestMemoryFull(v *view) []Finding {
	refused := v.rate("request.memory.refused")
	if refused == 0 {
		return nil
	}
	held, _ := v.value("request.memory.used")
	most, _ := v.value("request.memory.limit")
	return []Finding{{Severity: Warning,
		cause: cause{layer: layerMachine},
		Stage: "queue", Culprit: "request memory of " + v.Member,
		Title: fmt.Sprintf("%s rejects large requests: those in flight use up the memory budget", v.Member),
		Evidence: []Line{{Key: "request.memory.refused",
			Text: fmt.Sprintf("%.1f requests per second were rejected; %.0f of %.0f MiB are in use", refused, held/(1<<20),
				most/(1<<20))}},
		Do: []string{"Look for a client that sends large bodies slowly, or does not read its answers: subscriber.lag_ms " +
			"names slow readers.",
			"If the load is legitimate, raise limits { request_memory } together with the machine's or container's memory."}}}
}

// refusalsOfNote is how many refused connections a second are more than one client that tries again.
const refusalsOfNote = 1

// connectionsRefused finds a port at which an address wants more connections than it may have.
func connectionsRefused(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("net.connections_refused") {
		if s.Now.Rate < refusalsOfNote {
			continue
		}
		port := s.Label("port")
		key := map[string]string{"http": "http_max_conns_per_client", "monitor": "http_max_conns_per_client",
			"dns": "dns_max_conns_per_client", "secrets": "max_conns_per_client"}[port]
		if key == "" {
			key = "max_conns_per_client, max_strangers_per_client"
		}
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerMachine},
			Stage: "queue", Since: s.Since,
			Culprit: "connections to " + port + " of " + v.Member, subject: port,
			Title:    fmt.Sprintf("%s rejects connections to its %s port: an address has reached its limit", v.Member, port),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("%.1f connections per second were rejected", s.Now.Rate)}},
			Do: []string{"Find the address with the most connections to that port (ss -tn), and stop that client.",
				"If a fleet is behind that address (NAT, a proxy), raise limits { " + key + " } and reload."}})
	}
	return out
}

// memoryShort finds a machine or a limit that has no memory left.
func memoryShort(v *view) []Finding {
	s := v.one("host.psi", "resource", "memory", "kind", "full")
	if s == nil || s.Now.Value < 10 {
		return nil
	}
	return []Finding{{Severity: Critical,
		cause:   cause{layer: layerMachine, explains: []reach{{member: v.Member}}},
		Culprit: "memory of " + v.Member, Since: s.Since,
		Title: fmt.Sprintf("%s: short of memory: all work waited for it in %.0f %% of the last ten seconds", v.Member,
			s.Now.Value),
		Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("PSI memory full is %.0f %%", s.Now.Value)}},
		Do: []string{"Add memory, or find the process that uses it: corbel debug has heap profiles; GOMEMLIMIT limits " +
			"Corbel's own."}}}
}
