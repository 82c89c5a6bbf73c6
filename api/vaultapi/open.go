package vaultapi

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/sealing"
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
	st := sealing.SealStatus{Initialized: true}
	if a.cfg.Keeper.Sealed() { // else storage is not asked: a stuck one must not take this answer with it
		var err error
		if st, err = a.cfg.Keeper.SealStatus(r.Context()); err != nil {
			fail(w, err)
			return
		}
	}
	name, code := "activecode", http.StatusOK
	query, standby := r.URL.Query(), a.cfg.Keeper.Standby()
	switch {
	case !st.Initialized:
		name, code = "uninitcode", http.StatusNotImplemented
	case st.Sealed:
		name, code = "sealedcode", http.StatusServiceUnavailable
	case standby && !truthy(query["standbyok"]) && !truthy(query["perfstandbyok"]):
		name, code = "standbycode", http.StatusTooManyRequests
	}
	for _, other := range []string{"activecode", "uninitcode", "sealedcode", "standbycode", "performancestandbycode",
		"drsecondarycode", "removedcode"} {
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
	body := map[string]any{"initialized": st.Initialized, "sealed": st.Sealed, "standby": st.Sealed || !st.Initialized ||
		standby, "performance_standby": false,
		"replication_performance_mode": "disabled", "replication_dr_mode": "disabled", "server_time_utc": time.Now().Unix(),
		"version":    a.cfg.Version,
		"enterprise": false, "echo_duration_ms": 0, "clock_skew_ms": 0}
	if !st.Sealed {
		body["cluster_name"], body["cluster_id"] = a.cluster()
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

func (a *API) answerSeal(w http.ResponseWriter, st sealing.SealStatus, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	body := map[string]any{"type": st.Config.Type, "initialized": st.Initialized, "sealed": st.Sealed,
		"t": st.Config.Threshold, "n": st.Config.Shares,
		"progress": st.Progress, "nonce": st.Nonce, "version": a.cfg.Version, "build_date": "", "commit_date": "",
		"migration": st.Migration, "recovery_seal": st.Recovery,
		"storage_type": a.cfg.StorageType}
	if st.Recovery {
		body["recovery_seal_type"] = "shamir"
	}
	if !st.Sealed {
		body["cluster_name"], body["cluster_id"] = a.cluster()
	}
	writeJSON(w, http.StatusOK, body)
}

// truthy reads standbyok: its presence alone counts, as it did in old servers.
func truthy(values []string) bool {
	if len(values) == 0 {
		return false
	}
	on, err := strconv.ParseBool(values[0])
	return values[0] == "" || err == nil && on
}

func (a *API) cluster() (name, id string) {
	info := a.cfg.Keeper.Cluster()
	return info.Name, info.ID
}

func (a *API) leader(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodGet) {
		return
	}
	body := map[string]any{"ha_enabled": false, "is_self": false, "leader_address": "", "leader_cluster_address": "",
		"performance_standby": false, "performance_standby_last_remote_wal": 0}
	if c := a.cfg.Cluster; c != nil {
		if a.cfg.Keeper.Sealed() {
			fail(w, barrier.ErrSealed)
			return
		}
		body["ha_enabled"], body["active_time"] = true, time.Time{}
		if leader, ok := c.Leader(r.Context()); ok {
			body["leader_address"], body["leader_cluster_address"] = leader.APIAddr, "https://"+leader.ClusterAddr
		}
		if since, ok := c.Since(); ok {
			body["is_self"], body["active_time"] = true, since.Format(time.RFC3339Nano)
		}
	}
	writeJSON(w, http.StatusOK, body)
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
	c := sealing.InitConfig{Shares: f.Int("secret_shares", 0), Threshold: f.Int("secret_threshold", 0),
		RecoveryShares: f.Int("recovery_shares", 0), RecoveryThreshold: f.Int("recovery_threshold", 0),
		PGPKeys: f.Strings("pgp_keys"), RecoveryPGPKeys: f.Strings("recovery_pgp_keys"),
		RootPGPKey: f.String("root_token_pgp_key")}
	if err := f.Err(); err != nil {
		fail(w, err)
		return
	}
	first, err := a.initialize(r.Context(), &c)
	if err != nil {
		fail(w, err)
		return
	}
	keys, keys64 := texts(first.Shares)
	body := map[string]any{"keys": keys, "keys_base64": keys64, "root_token": first.RootToken}
	if len(first.RecoveryShares) > 0 {
		body["recovery_keys"], body["recovery_keys_base64"] = texts(first.RecoveryShares)
	}
	writeJSON(w, http.StatusOK, body)
}

func (a *API) initialize(ctx context.Context, c *sealing.InitConfig) (*sealing.Initialized, error) {
	if a.cfg.Cluster != nil {
		first, err := a.cfg.Cluster.Init(ctx, c)
		if err != nil {
			return nil, err
		}
		return first, a.cfg.Keeper.AutoUnseal(ctx)
	}
	first, err := a.cfg.Keeper.InitWith(ctx, c)
	if err != nil {
		return nil, err
	}
	return first, a.cfg.Keeper.AutoUnseal(ctx)
}

// texts are shares as they are given out: in hexadecimal and in base64.
func texts(shares [][]byte) (hexes, base64s []string) {
	hexes, base64s = []string{}, []string{}
	for _, s := range shares {
		hexes, base64s = append(hexes, hex.EncodeToString(s)), append(base64s, base64.StdEncoding.EncodeToString(s))
	}
	return hexes, base64s
}

func (a *API) unseal(w http.ResponseWriter, r *http.Request) {
	if !method(w, r, http.MethodPut, http.MethodPost) {
		return
	}
	f, ok := a.fields(w, r)
	if !ok {
		return
	}
	key, reset, migrate := f.String("key"), f.Bool("reset", false), f.Bool("migrate", false)
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
	share, err := sealing.ParseShare(key)
	if err != nil {
		fail(w, err)
		return
	}
	give := a.cfg.Keeper.Unseal
	if migrate {
		give = a.cfg.Keeper.Migrate
	}
	st, err := give(r.Context(), share)
	a.answerSeal(w, st, err)
}
