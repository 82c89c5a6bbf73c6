package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
)

// logged reads the lines of an audit log, and says if one of the texts is in it.
func logged(t *testing.T, path string, secret ...string) (out []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secret {
		if strings.Contains(string(text), s) {
			t.Errorf("%q is in the log", s)
		}
	}
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

func inside(m any, path ...string) any {
	for _, name := range path {
		o, _ := m.(map[string]any)
		m = o[name]
	}
	return m
}

func TestAuditDevices(t *testing.T) {
	h := newHouse(t)
	h.audits.Config.Rules.Folder = t.TempDir()
	log := filepath.Join(h.audits.Config.Rules.Folder, "a.log")
	t.Cleanup(h.Seal)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/x", `{"type":"file","options":{"file_path":"/etc/x"}}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/x", `{"type":"file","options":{"file_path":"`+
		h.audits.Config.Rules.Folder+`/none/x"}}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/x", `{"type":"none"}`)
	if r := h.ok(secrets.Read, "sys/audit", ""); string(r.Data) != "{}" {
		t.Errorf("after refusals: %s", r.Data)
	}
	h.ok(secrets.Update, "sys/audit/file", text(t, map[string]any{"type": "file", "description": "d",
		"options": map[string]string{"file_path": log}}))
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/file",
		text(t, map[string]any{"type": "file", "options": map[string]string{"file_path": log}}))
	h.ok(secrets.Update, "secret/a", `{"password":"s3cret-value"}`)
	h.ok(secrets.Read, "secret/a", "")
	app := h.token(`{"policies":["default"],"ttl":"1h"}`)
	h.refused(errkind.Denied, app, secrets.Read, "secret/a", "")
	h.refused(errkind.Denied, "hvs.unknown", secrets.Read, "secret/a", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "nowhere/a", "")
	hash := fmt.Sprint(field(t, h.ok(secrets.Update, "sys/audit-hash/file", `{"input":"s3cret-value"}`), "hash"))
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit-hash/none", `{"input":"x"}`)
	lines := logged(t, log, "s3cret-value", app, h.root, "hvs.unknown")
	if inside(lines[0], "request", "path") != "sys/audit/test" || lines[1]["type"] != "response" ||
		inside(lines[1], "request", "path") != "sys/audit/file" {
		t.Errorf("the first lines are %v, want a trial and the answer to the device's own making", lines[:2])
	}
	byPath := map[string][]map[string]any{}
	for _, l := range lines[2:] {
		key := fmt.Sprint(inside(l, "request", "operation"), " ", inside(l, "request", "path"), " ", l["type"])
		byPath[key] = append(byPath[key], l)
	}
	read := byPath["read secret/a response"]
	if len(byPath["create secret/a request"]) != 1 || len(byPath["create secret/a response"]) != 1 || len(read) != 3 {
		t.Fatalf("the entries are %v", byPath)
	}
	if inside(read[0], "response", "data", "password") != hash || inside(byPath["create secret/a request"][0], "request",
		"data", "password") != hash {
		t.Errorf("the value is not under the hash that audit-hash gives: %v", read[0])
	}
	if read[1]["error"] != "permission denied" || inside(read[1], "auth", "policy_results", "allowed") != false ||
		read[2]["error"] != "permission denied" || inside(read[2], "auth", "accessor") != nil {
		t.Errorf("refusals: %v, %v", read[1], read[2])
	}
	made := byPath["update auth/token/create response"]
	if token := fmt.Sprint(inside(made[0], "response", "auth", "client_token")); !strings.HasPrefix(token,
		"hmac-sha256:") {
		t.Errorf("a new token is shown as %s", token)
	}
	h.Seal()
	h.unseal()
	h.ok(secrets.Read, "secret/a", "")
	if got := logged(t, log, "s3cret-value"); inside(got[len(got)-1], "response", "data", "password") != hash {
		t.Errorf("after a seal: %v", got[len(got)-1])
	}
	h.ok(secrets.Delete, "sys/audit/file", "")
	h.ok(secrets.Delete, "sys/audit/file", "")
	n := len(logged(t, log))
	h.ok(secrets.Read, "secret/a", "")
	if got := len(logged(t, log)); got != n {
		t.Error("a device that was taken away writes on")
	}
}

// RELIABILITY B5: with all devices blocked or failing nothing is executed.
func TestNothingUnaudited(t *testing.T) {
	for name, path := range map[string]string{"a pipe that nobody reads": fifo(t), "a full disk": "/dev/full"} {
		h := newHouse(t)
		t.Cleanup(h.Seal)
		h.audits.Config.Rules.Unsafe = true
		h.ok(secrets.Update, "secret/a", `{"x":"old"}`)
		body := text(t, map[string]any{"type": "file", "options": map[string]string{"file_path": path}})
		if path != "/dev/full" {
			h.ok(secrets.Update, "sys/audit/bad", body)
		} else { // it would not be taken: it becomes full later
			h.refused(errkind.Invalid, h.root, secrets.Update, "sys/audit/bad", body)
			d, err := audit.Open(&audit.Config{Path: "bad/", Type: "file", Options: map[string]string{"file_path": path}},
				h.audits.Config.Rules, h.audits.Config.Log, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.gate.Load().Audits = []*audit.Device{d}
		}
		refused := 0
		big := `{"x":"new","y":[` + strings.Repeat("1,", 40<<10) + `1]}`
		for range 6 {
			if _, err := h.as(h.root, secrets.Update, "secret/b", big); err != nil {
				if errkind.Text(err) != "internal error" {
					t.Errorf("%s: %v", name, err)
				}
				refused++
			}
		}
		if refused < 5 {
			t.Errorf("%s: %d of 6 were refused", name, refused)
		}
		h.refused(errkind.Internal, h.root, secrets.Update, "secret/a", `{"x":"new"}`)
		raw, _, err := h.records.Get(t.Context(), h.gate.Load().Mounts.Get("secret/").Prefix()+"a")
		if err != nil || strings.Contains(string(raw), "new") {
			t.Errorf("%s: a request that was refused was executed: %s, %v", name, raw, err)
		}
	}
}

// TestRefusedByAuditIsNoUse: a request that no device recorded did nothing, and takes no use of its token.
func TestRefusedByAuditIsNoUse(t *testing.T) {
	h := newHouse(t)
	t.Cleanup(h.Seal)
	h.audits.Config.Rules.Unsafe = true
	few, one := h.token(`{"policies":["default"],"num_uses":3}`), h.token(`{"policies":["default"],"num_uses":1}`)
	many := h.token(`{"policies":["default"],"num_uses":100}`)
	d, err := audit.Open(&audit.Config{Path: "bad/", Type: "file", Options: map[string]string{"file_path": "/dev/full"}},
		h.audits.Config.Rules, h.audits.Config.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.gate.Load().Audits = []*audit.Device{d}
	for range 5 {
		for _, token := range []string{few, one, many} {
			h.refused(errkind.Internal, token, secrets.Read, "auth/token/lookup-self", "")
			h.refused(errkind.Internal, token, secrets.Read, "secret/not-allowed", "")
		}
	}
	h.gate.Load().Audits = nil
	for token, uses := range map[string]int{few: 3, one: 1, many: 100} {
		for left := uses - 1; left >= 0; left-- {
			r, err := h.as(token, secrets.Read, "auth/token/lookup-self", "")
			if err != nil {
				t.Fatalf("of %d uses only %d are there: %v", uses, uses-left-1, err)
			}
			if n := field(t, r, "num_uses"); fmt.Sprint(n) != fmt.Sprint(left) {
				t.Errorf("of %d uses %v are left, want %d", uses, n, left)
			}
		}
		h.refused(errkind.Denied, token, secrets.Read, "auth/token/lookup-self", "")
	}
}
