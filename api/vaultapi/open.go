package vaultapi

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/keeper"
)

// openPaths need no token and answer while sealed; their answers have no envelope.
var openPaths = map[string]func(*API, http.ResponseWriter, *http.Request){
	"sys/health":      (*API).health,
	"sys/seal-status": (*API).sealStatus,
	"sys/leader":      (*API).leader,
	"sys/init":        (*API).init,
	"sys/unseal":      (*API).unseal,
}

func method(w http.ResponseWriter, r *http.Request, allowed ...string) bool {
	for _, m := range allowed {
		if r.Method == m {
			return true
		}
	}
	writeError(w, http.StatusMethodNotAllowed)
	return false
}

// health answers load balancers (contract 2.2): codes by state, each of which the query may set.
func (a *API) health(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	st := keeper.SealStatus{Initialized: true}
	if a.cfg.Keeper.Sealed() { // else storage is not asked: a stuck one must not take this answer with it
		var err error
		if st, err = a.cfg.Keeper.SealStatus(r.Context()); err != nil {
			fail(w, err)
			return
		}
	}
	name, code := "activecode", http.StatusOK
	switch {
	case !st.Initialized:
		name, code = "uninitcode", http.StatusNotImplemented
	case st.Sealed:
		name, code = "sealedcode", http.StatusServiceUnavailable
	}
	query := r.URL.Query()
	for _, other := range []string{"activecode", "uninitcode", "sealedcode", "standbycode", "performancestandbycode", "drsecondarycode", "removedcode"} {
		if text, ok := query[other]; ok {
			n, err := strconv.Atoi(text[0])
			if err != nil || n < 100 || n > 999 {
				writeError(w, http.StatusBadRequest, other+": must be a status code")
				return
			}
			if other == name {
				code = n
			}
		}
	}
	if r.Method == http.MethodHead {
		write(w, code, nil, nil)
		return
	}
	body := map[string]any{"initialized": st.Initialized, "sealed": st.Sealed, "standby": st.Sealed || !st.Initialized, "performance_standby": false,
		"replication_performance_mode": "disabled", "replication_dr_mode": "disabled", "server_time_utc": time.Now().Unix(), "version": a.cfg.Version,
		"enterprise": false, "echo_duration_ms": 0, "clock_skew_ms": 0}
	if !st.Sealed {
		body["cluster_name"], body["cluster_id"] = a.cfg.ClusterName, a.cfg.ClusterID
	}
	writeJSON(w, code, body)
}

func (a *API) sealStatus(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodGet) {
		return
	}
	st, err := a.cfg.Keeper.SealStatus(r.Context())
	a.answerSeal(w, st, err)
}

func (a *API) answerSeal(w http.ResponseWriter, st keeper.SealStatus, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	body := map[string]any{"type": "shamir", "initialized": st.Initialized, "sealed": st.Sealed, "t": st.Config.Threshold, "n": st.Config.Shares,
		"progress": st.Progress, "nonce": st.Nonce, "version": a.cfg.Version, "build_date": "", "commit_date": "", "migration": false, "recovery_seal": false,
		"storage_type": a.cfg.StorageType}
	if !st.Sealed {
		body["cluster_name"], body["cluster_id"] = a.cfg.ClusterName, a.cfg.ClusterID
	}
	writeJSON(w, http.StatusOK, body)
}

func (a *API) leader(w http.ResponseWriter, r *http.Request) {
	if method(w, r, http.MethodGet) {
		writeJSON(w, http.StatusOK, map[string]any{"ha_enabled": false, "is_self": true, "leader_address": "", "leader_cluster_address": "",
			"performance_standby": false, "performance_standby_last_remote_wal": 0})
	}
}

// fields reads the body of an open path.
func (a *API) fields(w http.ResponseWriter, r *http.Request) (*secrets.Fields, bool) {
	b, err := a.body(r)
	if err != nil {
		fail(w, err)
		return nil, false
	}
	f, err := secrets.ParseFields(b)
	if err != nil {
		fail(w, err)
		return nil, false
	}
	return &f, true
}

func (a *API) init(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodGet, http.MethodPut, http.MethodPost) {
		return
	}
	if r.Method == http.MethodGet {
		st, err := a.cfg.Keeper.SealStatus(r.Context())
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, map[string]bool{"initialized": st.Initialized})
		return
	}
	f, ok := a.fields(w, r)
	if !ok {
		return
	}
	shares, threshold := f.Int("secret_shares", 0), f.Int("secret_threshold", 0)
	for _, name := range []string{"pgp_keys", "root_token_pgp_key"} {
		if len(f.Strings(name)) > 0 {
			writeError(w, http.StatusBadRequest, name+": encrypting shares for PGP keys is not supported yet")
			return
		}
	}
	if err := f.Err(); err != nil {
		fail(w, err)
		return
	}
	first, err := a.cfg.Keeper.Init(r.Context(), shares, threshold, "")
	if err != nil {
		fail(w, err)
		return
	}
	keys, keys64 := []string{}, []string{}
	for _, s := range first.Shares {
		keys, keys64 = append(keys, hex.EncodeToString(s)), append(keys64, base64.StdEncoding.EncodeToString(s))
	}
	writeJSON(w, http.StatusOK, map[string]any{"keys": keys, "keys_base64": keys64, "root_token": first.RootToken})
}

func (a *API) unseal(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodPut, http.MethodPost) {
		return
	}
	f, ok := a.fields(w, r)
	if !ok {
		return
	}
	key, reset := f.String("key"), f.Bool("reset", false)
	if err := f.Err(); err != nil {
		fail(w, err)
		return
	}
	if reset {
		st, err := a.cfg.Keeper.ResetUnseal(r.Context())
		a.answerSeal(w, st, err)
		return
	}
	if key == "" {
		writeError(w, http.StatusBadRequest, "'key' must be specified in request body as JSON, or 'reset' set to true")
		return
	}
	share, err := keeper.ParseShare(key)
	if err != nil {
		fail(w, err)
		return
	}
	st, err := a.cfg.Keeper.Unseal(r.Context(), share)
	a.answerSeal(w, st, err)
}
