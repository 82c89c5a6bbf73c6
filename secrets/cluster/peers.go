package cluster

import (
	"context"
	"io"
	"net/http"

	"corbel.dev/corbel/kit/errkind"
)

// maxEvidence bounds what another server may answer to the doctor.
const maxEvidence = 16 << 20

// Peers are the servers besides this one as far as it knows without asking anybody: the Raft group's members, else
// the active server as it was last looked up and those that this one heard of.
func (c *Cluster) Peers() (out []Server) {
	if c.cfg.Raft != nil {
		g := c.cfg.Raft.group.Load()
		if g == nil {
			return nil
		}
		list, _, err := g.Configuration()
		if err != nil {
			return nil
		}
		for _, s := range list {
			if s.ID != c.cfg.Self.ID {
				out = append(out, Server{ID: s.ID, ClusterAddr: s.Address})
			}
		}
		return out
	}
	out = c.Servers()
	if leader := c.known.Load(); leader != nil && leader.ID != "" && leader.ID != c.cfg.Self.ID {
		out = append(out, leader.Server)
	}
	return out
}

// EvidenceOf asks another server for what it knows about its own state, over the wire, on which servers know each
// other by certificate.
func (c *Cluster) EvidenceOf(ctx context.Context, s Server) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ClusterAddr+evidencePath, nil)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "the server's address", err)
	}
	resp, err := c.proxy.Transport.RoundTrip(req)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errkind.Errorf(errkind.Unavailable, "it answered %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxEvidence))
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "", err)
	}
	return b, nil
}
