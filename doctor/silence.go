package doctor

import "fmt"

// eventsReachNobody finds checks and handlers that name where events are to go, and from which none gets anywhere:
// nobody would be paged.
func eventsReachNobody(v *view) []Finding {
	count, _ := v.value("monitor.unreached")
	if count < 1 {
		return nil
	}
	f := Finding{Severity: Warning,
		cause: cause{layer: layerWork},
		Plane: "monitor", Stage: "handler",
		Culprit: "configuration of the monitor", subject: "unreached",
		Title: fmt.Sprintf("events of %.0f checks or handlers reach no one: no one is alerted", count),
		Do: []string{"Create what is missing, or fix the name: corbel create -f FILE warns about names that do not exist.",
			"corbel checks info NAME shows where a check's events go."}}
	for _, s := range v.all("monitor.unreached_by") {
		if s.Now.Value > 0 {
			f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: fmt.Sprintf("%s %s: %s", s.Label("kind"), s.Label("object"),
				s.Label("reason"))})
		}
	}
	if more := int(count) - len(f.Evidence); more > 0 {
		f.Evidence = append(f.Evidence, Line{Key: "monitor.unreached", Text: fmt.Sprintf("and %d more", more)})
	}
	return []Finding{f}
}

// sinkDeaf finds a sink of metrics or traces that takes nothing: dashboards and alerts that read from it are blind,
// and do not say so.
func sinkDeaf(v *view) []Finding {
	var out []Finding
	for _, s := range v.all("telemetry.sink.deaf") {
		if s.Now.Value < 1 {
			continue
		}
		name := s.Label("sink")
		out = append(out, Finding{Severity: Warning,
			cause: cause{layer: layerObserver},
			Stage: "observe", Culprit: "metrics sink " + name,
			subject: "deaf " + name, Since: s.Since,
			Title: fmt.Sprintf("%s: the metrics sink %s does not accept data: its dashboards show old values or none",
				v.Member, name),
			Evidence: []Line{{Key: s.Key(), Text: fmt.Sprintf("writes fail; in %s %.0f lines were dropped and %.0f sent "+
				"(over UDP, sent lines may be lost too)", v.Window,
				v.rate("telemetry.sink.dropped", "sink", name)*v.Window.Seconds(),
				v.rate("telemetry.sink.sent", "sink", name)*v.Window.Seconds())}},
			Do: []string{"Start the receiver, or correct the address and reload (SIGHUP). Nothing in Corbel waits for " +
				"it."}})
	}
	return out
}

// peeringFailing finds peers that are not heard, or that do not take what is sent. The leader alone knows.
func peeringFailing(v *view) (out []Finding) {
	for _, s := range v.all("peering.failing_ms") { // of several of a peer the first counts
		if peer := s.Label("peer"); s.Now.Value > 0 && (len(out) == 0 || out[len(out)-1].subject != everywhere+peer) {
			out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "catalog", Stage: "network",
				Culprit: "peering " + peer, subject: everywhere + peer, Since: v.ago(s.Now.Value), Title: "the peering with " +
					peer + " does not work (" + s.Label("state") + "): what it exports is as it was " + millis(s.Now.Value) + " ago",
				Evidence: []Line{{s.Label("reason"), s.Key()}}, Do: []string{"corbel peering read --name " + peer + " has its " +
					"addresses; who dials needs port 8300 there. If they or the secret changed: establish with a new token."}})
		}
	}
	return out
}
