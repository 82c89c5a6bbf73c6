package vaultapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/cluster"
)

var errSealed = barrier.ErrSealed

// snapshotWithin bounds the way of a snapshot to or from a client.
const snapshotWithin = time.Hour

// active answers the paths that are the active server's.
func (a raftAPI) active(w http.ResponseWriter, r *http.Request, path, rest string) {
	switch rest {
	case "snapshot":
		if r.Method == http.MethodGet {
			a.save(w, r, path)
			return
		}
		a.restore(w, r, path, false)
		return
	case "snapshot-force":
		a.restore(w, r, path, true)
		return
	}
	if !method(w, r, http.MethodPut, http.MethodPost) {
		return
	}
	body, err := a.readOpen(r)
	if err == nil {
		var data any
		if data, err = a.bootstrap(r.Context(), rest, body); err == nil {
			writeJSON(w, http.StatusOK, map[string]any{"data": data})
			return
		}
	}
	fail(w, err)
}

func (a raftAPI) bootstrap(ctx context.Context, rest string, body []byte) (any, error) {
	if rest == "bootstrap/challenge" {
		var in struct {
			ServerID string `json:"server_id"`
		}
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, errkind.New(errkind.Invalid, "the body is no JSON object")
		}
		return a.cfg.Cluster.Invite(ctx, in.ServerID)
	}
	in := &cluster.Answer{}
	if err := json.Unmarshal(body, in); err != nil {
		return nil, errkind.New(errkind.Invalid, "the body is no JSON object")
	}
	sealed, err := a.cfg.Cluster.Admit(ctx, in)
	return map[string]string{"authority": base64.StdEncoding.EncodeToString(sealed)}, err
}

func (a raftAPI) save(w http.ResponseWriter, r *http.Request, path string) {
	right := a.mayStream(w, r, path)
	if right == nil {
		return
	}
	ctx, cancel := longer(r)
	defer cancel()
	in, err := a.cfg.Cluster.Snapshot(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	defer in.Close()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="snapshot"`)
	if _, err := io.Copy(w, right.Reader(in)); err != nil {
		panic(http.ErrAbortHandler) // a cut archive must not look like a whole one
	}
}

func (a raftAPI) restore(w http.ResponseWriter, r *http.Request, path string, force bool) {
	if !method(w, r, http.MethodPut, http.MethodPost) {
		return
	}
	right := a.mayStream(w, r, path)
	if right == nil {
		return
	}
	ctx, cancel := longer(r)
	defer cancel()
	if err := a.cfg.Cluster.Restore(ctx, right.Reader(r.Body), force); err != nil {
		fail(w, err)
		return
	}
	write(w, http.StatusNoContent, nil, nil)
}

// mayStream is the right to what is streamed from or to the client, which is judged again while that lasts; nil when
// there is none, and the client was told.
func (a raftAPI) mayStream(w http.ResponseWriter, r *http.Request, path string) *standing.Standing {
	var holds func() error
	q, err := a.request(r, path)
	if err == nil {
		holds, err = a.cfg.Keeper.Authorise(r.Context(), q)
	}
	if err != nil {
		fail(w, err)
		return nil
	}
	return standing.New(nil, holds)
}

// longer is the request's context, which ends when the client leaves, with a bound.
func longer(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), snapshotWithin)
}

// join makes this server ask another to become a member of its cluster.
func (a raftAPI) join(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodPut, http.MethodPost) {
		return
	}
	f, ok := a.fields(w, r)
	if !ok {
		return
	}
	t := cluster.JoinTarget{APIAddr: f.String("leader_api_addr"), ServerName: f.String("leader_tls_servername"),
		NonVoter: f.Bool("non_voter", false),
		CACert:   []byte(f.String("leader_ca_cert")), ClientCert: []byte(f.String("leader_client_cert")),
		ClientKey: []byte(f.String("leader_client_key"))}
	if f.String("auto_join") != "" {
		fail(w, errkind.New(errkind.Invalid, "auto_join: is not supported: name a server with leader_api_addr"))
		return
	}
	if err := f.Err(); err != nil {
		fail(w, err)
		return
	}
	if t.APIAddr == "" {
		fail(w, errkind.New(errkind.Invalid, "leader_api_addr: is missing"))
		return
	}
	err := a.cfg.Cluster.Raft().Join(r.Context(), t)
	if err == nil {
		err = a.cfg.Keeper.AutoUnseal(r.Context())
	}
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"joined": true})
}
