package secretsplane

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/secrets/seal/cloudseal/cloudsealtest"
)

// restart runs the server again with other stanzas in the place of the former ones.
func (v *vaultTest) restart(former, stanzas string) {
	v.t.Helper()
	v.stop()
	v.conf = strings.Replace(v.conf, former, "", 1) + stanzas
	v.start()
}

func recoveryOf(out obj) (shares []string, token string) {
	for _, s := range out["recovery_keys_base64"].([]any) {
		shares = append(shares, s.(string))
	}
	return shares, out["root_token"].(string)
}

const staticSeal = `
seal "static" {
  current_key_id = "k1"
  current_key    = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
}
`

const staticSealNext = `
seal "static" {
  current_key_id  = "k2"
  current_key     = "f00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
  previous_key_id = "k1"
  previous_key    = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
}
`

// TestVaultStaticSeal: a start unseals by itself, also after a change of the key; recovery shares make a root token;
// a seal by hand stays until recovery shares open it.
func TestVaultStaticSeal(t *testing.T) {
	v := startVault(t, "a", staticSeal)
	v.must(400, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1})
	recovery, token := recoveryOf(v.must(200, "PUT", "sys/init", "", obj{"recovery_shares": 3, "recovery_threshold": 2}))
	v.awaitHealth(200)
	v.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	v.must(204, "PUT", "secret/x", token, obj{"v": "1"})
	if st := v.must(200, "GET", "sys/seal-status", "", nil); st["type"] != "static" || st["recovery_seal"] != true ||
		st["n"] != 3.0 || st["t"] != 2.0 {
		t.Fatal(st)
	}
	v.restart(staticSeal, staticSealNext)
	v.awaitHealth(200)
	onlyNew := strings.Split(staticSealNext, "  previous")[0] + "}\n" // the root key is under the new one since
	v.restart(staticSealNext, onlyNew)
	v.awaitHealth(200)
	v.must(200, "GET", "secret/x", token, nil)
	attempt := v.must(200, "PUT", "sys/generate-root/attempt", "", obj{})
	v.must(200, "PUT", "sys/generate-root/update", "", obj{"key": recovery[0], "nonce": attempt["nonce"]})
	if out := v.must(200, "PUT", "sys/generate-root/update", "",
		obj{"key": recovery[2], "nonce": attempt["nonce"]}); out["complete"] != true {
		t.Fatal(out)
	}
	v.must(400, "PUT", "sys/rekey/init", "", obj{"secret_shares": 1, "secret_threshold": 1})
	start := v.must(200, "PUT", "sys/rekey-recovery-key/init", "", obj{"secret_shares": 1, "secret_threshold": 1})
	v.must(200, "PUT", "sys/rekey-recovery-key/update", "", obj{"key": recovery[0], "nonce": start["nonce"]})
	done := v.must(200, "PUT", "sys/rekey-recovery-key/update", "", obj{"key": recovery[1], "nonce": start["nonce"]})
	fresh, _ := keysOf(obj{"keys_base64": done["keys_base64"], "root_token": ""})
	v.must(204, "POST", "sys/rotate/root", token, nil)
	v.must(204, "PUT", "sys/seal", token, nil)
	v.awaitHealth(503)
	v.must(400, "PUT", "sys/unseal", "", obj{"key": recovery[0]})
	v.unseal(fresh)
	v.awaitHealth(200)
}

// TestVaultSealsAndOpensAtOnce: a server that is unsealed before anybody saw that it was sealed becomes the active one.
func TestVaultSealsAndOpensAtOnce(t *testing.T) {
	v := startVault(t, "a", "")
	shares, token := keysOf(v.must(200, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1}))
	v.unseal(shares)
	v.awaitHealth(200)
	share, err := base64.StdEncoding.DecodeString(shares[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		v.srv.plane.keeper.Seal()
		if _, err := v.srv.plane.keeper.Unseal(t.Context(), share); err != nil {
			t.Fatal(err)
		}
		v.awaitHealth(200)
		v.must(200, "GET", "auth/token/lookup-self", token, nil)
	}
}

// TestVaultSealMigration: from shares to an automatic seal and back, with the same shares; not without being told to.
func TestVaultSealMigration(t *testing.T) {
	_, cloud := startKMS(t)
	for name, stanza := range map[string]string{"static": staticSeal, "awskms": cloud} {
		t.Run(name, func(t *testing.T) { migration(t, stanza) })
	}
}

func migration(t *testing.T, stanza string) {
	v := startVault(t, "a", "")
	shares, token := keysOf(v.must(200, "PUT", "sys/init", "", obj{"secret_shares": 3, "secret_threshold": 2}))
	v.unseal(shares[:2])
	v.awaitHealth(200)
	v.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	v.must(204, "PUT", "secret/x", token, obj{"v": "1"})

	v.restart("", stanza)
	v.awaitHealth(503)
	v.must(400, "PUT", "sys/unseal", "", obj{"key": shares[0]})
	migrate := func() {
		for _, s := range shares[1:] {
			v.must(200, "PUT", "sys/unseal", "", obj{"key": s, "migrate": true})
		}
		v.awaitHealth(200)
		v.must(200, "GET", "secret/x", token, nil)
	}
	migrate()
	v.restart("", "")
	v.awaitHealth(200) // by itself

	v.restart(stanza, strings.Replace(stanza, "{\n", "{\n  disabled = true\n", 1))
	v.awaitHealth(503)
	migrate()
	v.restart(strings.Replace(stanza, "{\n", "{\n  disabled = true\n", 1), "")
	v.awaitHealth(503)
	v.unseal(shares[:2])
	v.awaitHealth(200)
}

// startKMS has an AWS KMS in this process, and the stanza that names it.
func startKMS(t *testing.T) (*cloudsealtest.KMS, string) {
	t.Helper()
	kms := cloudsealtest.NewKMS("eu-central-1", "AKIDEXAMPLE", "hidden-secret")
	server := httptest.NewServer(kms)
	t.Cleanup(server.Close)
	return kms, fmt.Sprintf("seal \"awskms\" {\n  region = \"eu-central-1\"\n  endpoint = %q\n"+
		"  access_key = \"AKIDEXAMPLE\"\n  secret_key = \"hidden-secret\"\n  kms_key_id = \"alias/unseal\"\n}\n", server.URL)
}

// TestVaultCloudSeal: a start unseals by a cloud's key, and waits for a cloud that throttles; the key's variable
// overrides the stanza. After a change of the key the former one is not needed any more.
func TestVaultCloudSeal(t *testing.T) {
	kms, stanza := startKMS(t)
	t.Setenv("VAULT_AWSKMS_SEAL_KEY_ID", "alias/unseal")
	stanza = strings.Replace(stanza, "alias/unseal", "alias/none", 1)
	v := startVault(t, "a", stanza)
	v.must(400, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1})
	_, token := recoveryOf(v.must(200, "PUT", "sys/init", "", obj{"recovery_shares": 3, "recovery_threshold": 2}))
	v.awaitHealth(200)
	if st := v.must(200, "GET", "sys/seal-status", "", nil); st["type"] != "awskms" || st["recovery_seal"] != true {
		t.Fatal(st)
	}
	v.must(204, "POST", "sys/mounts/secret", token, obj{"type": "kv"})
	v.must(204, "PUT", "secret/x", token, obj{"v": "1"})
	v.stop()
	const first = "1234abcd-12ab-34cd-56ef-1234567890ab"
	kms.Disable(first, true)
	v.start()
	v.awaitHealth(503)
	kms.Disable(first, false)
	v.awaitHealth(200)
	kms.AddKey("second")
	v.restart("", "")
	v.awaitHealth(200)
	v.must(200, "GET", "secret/x", token, nil)
	kms.Disable(first, true) // the root key is under the second one since
	v.restart("", "")
	v.awaitHealth(200)
	v.must(204, "POST", "sys/rotate/root", token, nil)
	kms.AddKey("third") // the change is noticed when the seal is next opened, and not before
	v.restart("", "")
	v.awaitHealth(200)
	v.must(200, "GET", "secret/x", token, nil)
}

// TestVaultTransitSeal: one of our servers seals another; where it is away the start waits for it.
func TestVaultTransitSeal(t *testing.T) {
	keeper := startVault(t, "k", "")
	shares, token := keysOf(keeper.must(200, "PUT", "sys/init", "", obj{"secret_shares": 1, "secret_threshold": 1}))
	keeper.unseal(shares)
	keeper.awaitHealth(200)
	keeper.must(204, "POST", "sys/mounts/transit", token, obj{"type": "transit"})
	if code, out := keeper.do("POST", "transit/keys/unseal", token, obj{}); code != 200 && code != 204 {
		t.Fatal(code, out)
	}
	conf := fmt.Sprintf("seal \"transit\" {\n  address = %q\n  token = %q\n  key_name = \"unseal\"\n}\n",
		keeper.url, token)
	fromEnv := map[string]string{"VAULT_SEAL_TYPE": "transit", "VAULT_ADDR": keeper.url, "VAULT_TOKEN": token,
		"VAULT_TRANSIT_SEAL_KEY_NAME": "unseal"}
	for name, value := range fromEnv {
		t.Setenv(name, value)
	}
	v := startVault(t, "v", "") // by the environment alone
	if st := v.must(200, "GET", "sys/seal-status", "", nil); st["type"] != "transit" {
		t.Fatal(st)
	}
	_, own := recoveryOf(v.must(200, "PUT", "sys/init", "", obj{"recovery_shares": 1, "recovery_threshold": 1}))
	v.awaitHealth(200)
	v.must(200, "GET", "auth/token/lookup-self", own, nil)
	for name := range fromEnv {
		t.Setenv(name, "")
	}
	v.restart("", conf)
	v.awaitHealth(200)
	v.stop()
	keeper.must(204, "PUT", "sys/seal", token, nil)
	v.start()
	v.awaitHealth(503)
	keeper.unseal(shares)
	v.awaitHealth(200)
	v.must(200, "GET", "auth/token/lookup-self", own, nil)
}
