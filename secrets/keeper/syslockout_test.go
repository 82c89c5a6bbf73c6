package keeper

import (
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/task"
)

// The configuration's rules of a type hold over those of all, and a mount's own over both; they are changed, shown
// and taken back by its tuning.
func TestLockoutRulesOfMounts(t *testing.T) {
	h := newHouse(t)
	off := true
	h.owners.mounts.Lockouts = map[string]auth.LockoutRules{"all": {After: 2, For: time.Hour}, "approle": {Off: &off}}
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "sys/auth/own", `{"type":"userpass","config":{"user_lockout_config":{"lockout_threshold":"3"}}}`)
	h.ok(secrets.Update, "sys/auth/approle", `{"type":"approle"}`)
	for _, at := range []string{"userpass", "own"} {
		h.ok(secrets.Update, "auth/"+at+"/users/ann", text(t, map[string]string{"password_hash": quick(t)}))
	}
	lockedAfter := func(at string) int {
		t.Helper()
		for n := range 10 {
			_, err := h.as("", secrets.Update, "auth/"+at+"/login/ann", `{"password":"guess"}`)
			if errkind.Is(err, errkind.Denied) {
				h.refused(errkind.Denied, "", secrets.Update, "auth/"+at+"/login/ann", `{"password":"pw"}`)
				h.ok(secrets.Update, "sys/locked-users/"+h.gate.Load().Mounts.Get("auth/"+at+"/").Accessor+"/unlock/ann", "")
				return n
			}
		}
		return 10
	}
	for at, want := range map[string]int{"userpass": 2, "own": 3} {
		if got := lockedAfter(at); got != want {
			t.Errorf("%s locks after %d failures, want %d", at, got, want)
		}
	}
	tune := func(config string) map[string]any {
		t.Helper()
		h.ok(secrets.Update, "sys/auth/own/tune", `{"user_lockout_config":`+config+`}`)
		return object(t, h.ok(secrets.Read, "sys/auth/own/tune", ""))
	}
	got := tune(`{"lockout_threshold":4,"lockout_duration":"10m","lockout_counter_reset_duration":60}`)
	if fmt.Sprint(got["user_lockout_threshold"], got["user_lockout_duration"], got["user_lockout_counter_reset_duration"],
		got["user_lockout_disable"]) != "4 600 60 false" {
		t.Errorf("tuned: %v", got)
	}
	if n := lockedAfter("own"); n != 4 {
		t.Errorf("tuned, it locks after %d failures", n)
	}
	for range 4 {
		_, _ = h.as("", secrets.Update, "auth/own/login/ann", `{"password":"guess"}`)
	}
	h.refused(errkind.Denied, "", secrets.Update, "auth/own/login/ann", `{"password":"pw"}`)
	h.now = h.now.Add(11 * time.Minute)
	if _, err := h.as("", secrets.Update, "auth/own/login/ann", `{"password":"pw"}`); err != nil {
		t.Errorf("after its ten minutes: %v", err)
	}
	if tune(`{"lockout_disable":true}`); lockedAfter("own") != 10 {
		t.Error("switched off, it locks")
	}
	if tune(
		`{"lockout_disable":false,"lockout_threshold":0,"lockout_duration":0,"lockout_counter_reset_duration":0}`); lockedAfter("own") != 2 {
		t.Error("without rules of its own, the mount does not keep to those of all")
	}
	for _, body := range []string{`{"user_lockout_config":5}`, `{"user_lockout_config":{"lockout_threshold":"many"}}`,
		`{"user_lockout_config":{"lockout_threshold":-1}}`, `{"user_lockout_config":{"lockout_duration":"-5s"}}`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/auth/own/tune", body)
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/mounts/secret/tune",
		`{"user_lockout_config":{"lockout_threshold":3}}`)
	role := fmt.Sprint(object(t, func() *task.Reply {
		h.ok(secrets.Update, "auth/approle/role/r", `{}`)
		return h.ok(secrets.Read, "auth/approle/role/r/role-id", "")
	}())["role_id"])
	for range 10 { // never locked: each failure is told as what it is
		h.refused(errkind.Invalid, "", secrets.Update, "auth/approle/login", `{"role_id":"`+role+`","secret_id":"no"}`)
	}
	h.owners.mounts.NoLockout = true
	h.Seal()
	h.unseal()
	if lockedAfter("userpass") != 10 {
		t.Error("it locks although nobody is to be locked out")
	}
}
