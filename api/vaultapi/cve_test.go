package vaultapi

import (
	"strings"
	"testing"
)

// See the tests of the same kind in secrets/keeper: what was found in Vault or OpenBao must not be found here.

// CVE-2025-4656, CVE-2025-52894, CVE-2026-5807: whoever reached the port could cancel a rekey or the making of a root
// token, without a token.
func TestCVE_2025_4656_NobodyCancelsARekey(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"sys/rekey/init", "sys/rekey/verify", "sys/rekey/backup", "sys/rekey-recovery-key/init",
		"sys/generate-root/attempt", "sys/rotate/root/init"} {
		for _, method := range []string{"DELETE", "PUT", "GET"} {
			if code, body := d.do(method, path, `{"secret_shares":1,"secret_threshold":1}`, "X-Vault-Token", ""); code < 400 {
				t.Errorf("%s %s without a token: %d %v", method, path, code, body)
			}
		}
	}
}

// CVE-2026-3605: a path with ".." reached records that the policy had kept from its caller.
func TestCVE_2026_3605_RelativePaths(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"secret/a/../b", "secret/..", "secret/./b", "secret/a/%2e%2e/b", "secret/a/..%2fb",
		"secret/a/.%2e/b"} {
		for _, method := range []string{"PUT", "DELETE", "GET"} {
			if code, body := d.do(method, path, `{"x":"1"}`); code != 400 {
				t.Errorf("%s %s: %d %v", method, path, code, body)
			}
		}
	}
}

// CVE-2023-6337: requests of any size were read into memory before anybody was asked for a token.
func TestCVE_2023_6337_LargeBodies(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"secret/a", "auth/userpass/login/ann", "sys/unseal", "sys/init", "sys/wrapping/unwrap"} {
		if code, body := d.do("PUT", path, `{"key":"`+strings.Repeat("a", 33<<20)+`"}`, "X-Vault-Token", ""); code != 413 &&
			code != 403 {
			t.Errorf("33 MiB at %s: %d %v", path, code, body)
		}
	}
}

// CVE-2024-8185: joining a cluster was answered for as long and as often as anybody asked.
func TestCVE_2024_8185_NobodyJoinsWhereThereIsNoCluster(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"sys/storage/raft/join", "sys/storage/raft/bootstrap/challenge",
		"sys/storage/raft/bootstrap/answer"} {
		if code, body := d.do("PUT", path, `{"leader_api_addr":"http://127.0.0.1:1"}`, "X-Vault-Token", ""); code < 400 {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
}
