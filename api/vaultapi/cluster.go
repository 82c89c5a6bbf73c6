package vaultapi

import (
	"net/http"

	"corbel.dev/corbel/secrets/cluster"
)

// handOn has the active server answer a request. body is the request's where it was read already.
func (a *API) handOn(w http.ResponseWriter, r *http.Request, body []byte, via cluster.Via) {
	c := a.cfg.Cluster
	if via.Handed { // once is enough: whoever sent it looks for the active server anew
		cluster.StandbyAnswer(w.Header())
		fail(w, errNoActive)
		return
	}
	if body == nil && r.Body != nil && r.Body != http.NoBody {
		var err error
		if body, err = a.read(r); err != nil {
			fail(w, err)
			return
		}
	}
	outcome, leader := c.Forward(w, r, body)
	switch outcome {
	case cluster.Answered:
	case cluster.Serve:
		r.Body = rewound(body)
		a.serve(w, r, via)
	case cluster.Redirect:
		a.redirect(w, r, leader)
	case cluster.Uncertain:
		writeError(w, http.StatusBadGateway, "the active server went away while it had this request: whether it was done "+
			"is not known")
	default:
		fail(w, errNoActive)
	}
}

func (a *API) redirect(w http.ResponseWriter, r *http.Request, leader cluster.Server) {
	to := cluster.RedirectTo(leader, r.URL)
	if to == "" {
		fail(w, errNoActive)
		return
	}
	w.Header().Set("Location", to)
	write(w, http.StatusTemporaryRedirect, nil, nil)
}

// neverHanded is whether a path means this server and no other.
func neverHanded(path string) bool { return path == "sys/seal" }

// localHere answers a path that tells of one server: by itself where this standby can judge who asks, else by telling
// the client where the active server is, which then tells of itself.
func (a *API) localHere(w http.ResponseWriter, r *http.Request, path string) {
	q, _, err := a.decode(r, path, cluster.Via{})
	if err != nil {
		fail(w, err)
		return
	}
	if reply, ok := a.cfg.Keeper.LocalHere(r.Context(), q); ok {
		answer(w, r, q, reply)
		return
	}
	if leader, ok := a.cfg.Cluster.Leader(r.Context()); ok {
		a.redirect(w, r, leader)
		return
	}
	fail(w, errNoActive)
}
