package doctor

import "fmt"

// peeringFailing finds peers that are not heard, or that do not take what is sent. The leader alone knows; it tells no
// reason where the other side connects and does not come.
func peeringFailing(v *view) []Finding {
	var out []Finding
	at := map[string]int{} // a peer that is tried at several addresses has a reason for each
	for _, s := range v.all("peering.failing_ms") {
		peer, reason := s.Label("peer"), s.Label("reason")
		if s.Now.Value <= 0 {
			continue
		}
		i, known := at[peer]
		if !known {
			i = len(out)
			at[peer] = i
			out = append(out, Finding{Severity: Warning, cause: cause{layer: layerWork}, Plane: "catalog", Stage: "network",
				Culprit: "peering " + peer, subject: everywhere + peer, Do: peeringSteps(peer, s.Label("side"))})
		}
		f := &out[i]
		if since := v.ago(s.Now.Value); f.Since.IsZero() || since.Before(f.Since) {
			f.Since = since
			f.Title = fmt.Sprintf("the peering with %s has failed for %s: what it exports is as it was then", peer,
				millis(s.Now.Value))
			if s.Label("state") == "ESTABLISHING" {
				f.Title = fmt.Sprintf("the peering with %s has not come about for %s", peer, millis(s.Now.Value))
			}
		}
		switch {
		case reason != "":
		case s.Label("side") == "dials":
			reason = "no server of it has answered"
		default:
			reason = "none of its servers has called"
		}
		f.Evidence = append(f.Evidence, Line{Key: s.Key(), Text: reason})
	}
	return out
}

func peeringSteps(peer, side string) []string {
	read := "corbel peering read --name " + peer
	if side == "dials" {
		return []string{read + " shows the peer's addresses and the last trouble: this cluster's leader connects there, to " +
			"port 8300 of its servers. Open the way, or start them.",
			"If its servers have other addresses now, or do not know the secret any more: generate a token there, and " +
				"establish with it under the same name."}
	}
	return []string{"The other cluster connects to this one: have its operators run corbel doctor and corbel peering list " +
		"there, and see that they reach port 8300 of these servers (" + read + " shows when it was heard last).",
		"If these servers have other addresses now, generate a new token for this name, and have it established there."}
}
