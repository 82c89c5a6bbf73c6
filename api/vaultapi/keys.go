package vaultapi

import (
	"net/http"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/cluster"
	"corbel.dev/corbel/secrets/sealing"
)

// keyPaths are those of rekey and generate-root: the active server's, without an envelope. Without a token they are
// open where the configuration says so; else they ask for the sudo capability.
var keyPaths = map[string]struct {
	serve func(a rekeying, w http.ResponseWriter, r *http.Request, f *secrets.Fields) (any, error)
	root  bool // generate-root's, not rekey's
	must  bool // always with a token
}{
	"sys/generate-root/attempt": {serve: rekeying.rootAttempt, root: true},
	"sys/generate-root/update":  {serve: rekeying.rootUpdate, root: true},

	"sys/rekey/init":                {serve: rekeyOf(rekeying.init, sealing.RekeyBarrier)},
	"sys/rekey/update":              {serve: rekeyOf(rekeying.update, sealing.RekeyBarrier)},
	"sys/rekey/verify":              {serve: rekeyOf(rekeying.verify, sealing.RekeyBarrier)},
	"sys/rekey/backup":              {serve: rekeyOf(rekeying.backup, sealing.RekeyBarrier), must: true},
	"sys/rekey-recovery-key/init":   {serve: rekeyOf(rekeying.init, sealing.RekeyRecovery)},
	"sys/rekey-recovery-key/update": {serve: rekeyOf(rekeying.update, sealing.RekeyRecovery)},
	"sys/rekey-recovery-key/verify": {serve: rekeyOf(rekeying.verify, sealing.RekeyRecovery)},
	"sys/rekey/recovery-key-backup": {serve: rekeyOf(rekeying.backup, sealing.RekeyRecovery), must: true},

	"sys/rotate/root/init":       {serve: rekeyOf(rekeying.init, sealing.RekeyBarrier), must: true},
	"sys/rotate/root/update":     {serve: rekeyOf(rekeying.update, sealing.RekeyBarrier), must: true},
	"sys/rotate/root/verify":     {serve: rekeyOf(rekeying.verify, sealing.RekeyBarrier), must: true},
	"sys/rotate/root/backup":     {serve: rekeyOf(rekeying.backup, sealing.RekeyBarrier), must: true},
	"sys/rotate/recovery/init":   {serve: rekeyOf(rekeying.init, sealing.RekeyRecovery), must: true},
	"sys/rotate/recovery/update": {serve: rekeyOf(rekeying.update, sealing.RekeyRecovery), must: true},
	"sys/rotate/recovery/verify": {serve: rekeyOf(rekeying.verify, sealing.RekeyRecovery), must: true},
	"sys/rotate/recovery/backup": {serve: rekeyOf(rekeying.backup, sealing.RekeyRecovery), must: true},
}

func rekeyOf(f func(rekeying, *http.Request, *secrets.Fields, sealing.RekeyKind) (any, error),
	kind sealing.RekeyKind) func(rekeying, http.ResponseWriter, *http.Request, *secrets.Fields) (any, error) {
	return func(a rekeying, _ http.ResponseWriter, r *http.Request, fields *secrets.Fields) (any, error) {
		return f(a, r, fields, kind)
	}
}

// keys answers one of keyPaths; false when the path is none.
func (a *API) keys(w http.ResponseWriter, r *http.Request, path string) bool {
	row, ok := keyPaths[path]
	if !ok {
		return false
	}
	open := a.cfg.OpenRekey
	if row.root {
		open = a.cfg.OpenGenerateRoot
	}
	if !open || row.must {
		q, err := a.request(r, path)
		if err == nil {
			_, err = a.cfg.Keeper.Authorise(r.Context(), q)
		}
		if err != nil {
			fail(w, err)
			return true
		}
	}
	var f *secrets.Fields
	if r.Method == http.MethodPut || r.Method == http.MethodPost {
		if f, ok = a.fields(w, r); !ok {
			return true
		}
	}
	body, err := row.serve(rekeying{a}, w, r, f)
	switch {
	case err != nil:
		fail(w, err)
	case body == nil:
		write(w, http.StatusNoContent, nil, nil)
	default:
		writeJSON(w, http.StatusOK, body)
	}
	return true
}

// request is a request as policies judge it, without its body.
func (a *API) request(r *http.Request, path string) (q *secrets.Request, err error) {
	from := remote(r)
	q = &secrets.Request{ID: requestID(), Path: path, Caller: secrets.Caller{Token: tokenOf(r)},
		Origin: secrets.Origin{Remote: from.Addr(), RemotePort: from.Port()}}
	q.Op, err = operation(r, r.URL.Query())
	return q, err
}

var errMethod = errkind.New(errkind.Conflict, "unsupported operation")

// share reads key and nonce of an update.
func share(f *secrets.Fields) ([]byte, string, error) {
	if f == nil {
		return nil, "", errMethod
	}
	key, nonce := f.String("key"), f.String("nonce")
	if err := f.Err(); err != nil {
		return nil, "", err
	}
	if key == "" {
		return nil, "", errkind.New(errkind.Invalid, "'key' must be specified in request body as JSON")
	}
	b, err := sealing.ParseShare(key)
	return b, nonce, err
}

func rootBody(st sealing.RootStatus) map[string]any {
	return map[string]any{"started": st.Started, "nonce": st.Nonce, "progress": st.Progress, "required": st.Required,
		"complete": st.Complete, "pgp_fingerprint": st.Fingerprint,
		"otp": st.OTP, "otp_length": st.OTPLength, "encoded_token": st.Encoded, "encoded_root_token": st.Encoded}
}

// rekeying makes new keys and root tokens.
type rekeying struct{ *API }

func (a rekeying) rootAttempt(_ http.ResponseWriter, r *http.Request, f *secrets.Fields) (any, error) {
	k := a.cfg.Keeper
	var st sealing.RootStatus
	var err error
	switch {
	case r.Method == http.MethodGet:
		st, err = k.GenerateRoot(r.Context())
	case r.Method == http.MethodDelete:
		return nil, k.CancelGenerateRoot()
	case f == nil:
		return nil, errMethod
	default:
		otp, key := f.String("otp"), f.String("pgp_key")
		if err := f.Err(); err != nil {
			return nil, err
		}
		st, err = k.StartGenerateRoot(r.Context(), otp, key)
	}
	return rootBody(st), err
}

func (a rekeying) rootUpdate(_ http.ResponseWriter, r *http.Request, f *secrets.Fields) (any, error) {
	b, nonce, err := share(f)
	if err != nil {
		return nil, err
	}
	st, err := a.cfg.Keeper.UpdateGenerateRoot(r.Context(), b, nonce)
	return rootBody(st), err
}

func rekeyBody(st sealing.RekeyStatus) map[string]any {
	body := map[string]any{"nonce": st.Nonce, "started": st.Started, "t": st.Threshold, "n": st.Shares,
		"progress": st.Progress, "required": st.Required,
		"pgp_fingerprints": st.Fingerprints, "backup": st.Backup, "verification_required": st.Verification}
	if st.VerificationNonce != "" {
		body["verification_nonce"] = st.VerificationNonce
	}
	return body
}

func (a rekeying) init(r *http.Request, f *secrets.Fields, kind sealing.RekeyKind) (any, error) {
	k := a.cfg.Keeper
	switch {
	case r.Method == http.MethodGet:
		st, err := k.Rekey(r.Context(), kind)
		return rekeyBody(st), err
	case r.Method == http.MethodDelete:
		return nil, k.CancelRekey(kind)
	case f == nil:
		return nil, errMethod
	}
	want := sealing.Rekeying{Shares: f.Int("secret_shares", 0), Threshold: f.Int("secret_threshold", 0),
		Verify:  f.Bool("require_verification", false),
		PGPKeys: f.Strings("pgp_keys"), Backup: f.Bool("backup", false)}
	if err := f.Err(); err != nil {
		return nil, err
	}
	st, err := k.StartRekey(r.Context(), kind, want)
	return rekeyBody(st), err
}

func (a rekeying) update(r *http.Request, f *secrets.Fields, kind sealing.RekeyKind) (any, error) {
	b, nonce, err := share(f)
	if err != nil {
		return nil, err
	}
	st, err := a.cfg.Keeper.UpdateRekey(r.Context(), kind, b, nonce)
	if err != nil || !st.Complete {
		return rekeyBody(st), err
	}
	keys, keys64 := texts(st.NewShares)
	return map[string]any{"nonce": st.Nonce, "complete": true, "keys": keys, "keys_base64": keys64,
		"pgp_fingerprints": st.Fingerprints, "backup": st.Backup,
		"verification_required": st.Verification, "verification_nonce": st.VerificationNonce}, nil
}

func (a rekeying) verify(r *http.Request, f *secrets.Fields, kind sealing.RekeyKind) (any, error) {
	k := a.cfg.Keeper
	proof := func(st sealing.RekeyStatus) map[string]any {
		return map[string]any{"nonce": st.VerificationNonce, "started": st.VerificationNonce != "", "t": st.Threshold,
			"n": st.Shares, "progress": st.ProofProgress}
	}
	switch {
	case r.Method == http.MethodGet:
		st, err := k.Rekey(r.Context(), kind)
		if err == nil && st.VerificationNonce == "" {
			err = errkind.New(errkind.Invalid, "no rekey verification in progress")
		}
		return proof(st), err
	case r.Method == http.MethodDelete:
		st, err := k.RestartVerification(r.Context(), kind)
		return proof(st), err
	}
	b, nonce, err := share(f)
	if err != nil {
		return nil, err
	}
	st, err := k.VerifyRekey(r.Context(), kind, b, nonce)
	if err == nil && st.Complete {
		return map[string]any{"nonce": nonce, "complete": true}, nil
	}
	return proof(st), err
}

// backup shows the encrypted shares that were kept, by the fingerprints of their keys, or forgets them.
func (a rekeying) backup(r *http.Request, _ *secrets.Fields, kind sealing.RekeyKind) (any, error) {
	if r.Method == http.MethodDelete {
		return nil, a.cfg.Keeper.ForgetBackup(r.Context(), kind)
	}
	if r.Method != http.MethodGet {
		return nil, errMethod
	}
	kept, err := a.cfg.Keeper.Backup(r.Context(), kind)
	if err != nil {
		return nil, err
	}
	data := map[string]any{"nonce": kept.Nonce}
	keys, keys64 := map[string][]string{}, map[string][]string{}
	for print, shares := range kept.Shares {
		keys[print], keys64[print] = texts(shares)
	}
	data["keys"], data["keys_base64"] = keys, keys64
	return map[string]any{"data": data, "nonce": kept.Nonce, "keys": keys, "keys_base64": keys64,
		"request_id": requestID(), "lease_id": "", "renewable": false, "lease_duration": 0,
		"wrap_info": nil, "warnings": nil, "auth": nil}, nil
}

// raftAPI answers what is asked of the Raft storage.
type raftAPI struct{ *API }

// raftPaths are those of the Raft storage that have no row of the keeper's: open ones, and streams.
func (a raftAPI) route(w http.ResponseWriter, r *http.Request, path string, via cluster.Via) bool {
	rest, ok := strings.CutPrefix(path, "sys/storage/raft/")
	c := a.cfg.Cluster
	if !ok || c == nil || c.Raft() == nil {
		return false
	}
	switch rest {
	case "join":
		a.join(w, r)
	case "bootstrap/challenge", "bootstrap/answer", "snapshot", "snapshot-force":
		switch {
		case a.cfg.Keeper.Active():
			a.active(w, r, path, rest)
		case a.cfg.Keeper.Sealed():
			fail(w, errSealed)
		case strings.HasPrefix(rest, "snapshot"): // never proxied: it may be long
			if leader, ok := c.Leader(r.Context()); ok {
				a.redirect(w, r, leader)
			} else {
				fail(w, errNoActive)
			}
		default:
			a.handOn(w, r, nil, via)
		}
	default:
		return false
	}
	return true
}
