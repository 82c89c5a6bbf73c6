package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

// reach presses Tab until what has the focus reads as text, as somebody without a mouse does. within is the line of
// the table where several read so.
func (v *viewer) reach(text, within string) {
	v.t.Helper()
	if _, err := evaluate[int](v, "document.activeElement?.blur(), 0"); err != nil {
		v.t.Fatal(err)
	}
	for range 150 {
		v.keys(kb.Tab)
		here, err := evaluate[bool](v, fmt.Sprintf(`(() => { const e = document.activeElement;
			return [e.textContent.trim(), e.getAttribute('aria-label'), e.name,
				e.labels?.[0]?.textContent.trim()].includes(%q) &&
				(e.closest('tr, .row, form')?.textContent ?? '').includes(%q) })()`, text, within))
		if err != nil {
			v.t.Fatal(err)
		}
		if here {
			return
		}
	}
	v.t.Fatalf("Tab does not come to %q beside %q", text, within)
}

// push reaches what reads as text and presses Enter.
func (v *viewer) push(text, within string) {
	v.t.Helper()
	v.reach(text, within)
	v.keys(kb.Enter)
}

// asked waits for the question, which must say what it hits, and returns the command that does the same.
func (v *viewer) asked(hits string) (twin string) {
	v.t.Helper()
	v.see("dialog:focus-within", hits)
	twin, err := evaluate[string](v, "document.querySelector('dialog .curl').textContent")
	if err != nil || twin == "" {
		v.t.Fatalf("the question has no command: %v", err)
	}
	return twin
}

// confirmed answers the question with Enter, and waits until it is gone.
func (v *viewer) confirmed(hits string) {
	v.t.Helper()
	v.asked(hits)
	v.keys(kb.Enter)
	polltest.Until(v.t, func() bool {
		gone, err := evaluate[bool](v, "!document.querySelector('dialog')")
		return err == nil && gone
	}, "the end of the question %q", hits)
}

// twin runs the command of the question as a person who pasted it into a shell, and leaves the question.
func (v *viewer) twin(hits string) {
	v.t.Helper()
	command := v.asked(hits)
	v.keys(kb.Escape)
	if _, err := exec.LookPath("curl"); err != nil {
		loud.Skip(v.t, "the commands that the web UI shows: there is no curl")
	}
	sh := exec.CommandContext(v.t.Context(), "sh", "-c", command)
	sh.Env = append(os.Environ(), v.env...)
	if out, err := sh.CombinedOutput(); err != nil || strings.Contains(strings.ToLower(string(out)), "error") ||
		strings.Contains(string(out), "denied") {
		v.t.Errorf("%s\n%s %v", command, out, err)
	}
}

// holds waits until the answer of a plane has the text; without tells that it must not.
func (v *viewer) holds(path, text string, without bool) {
	v.t.Helper()
	polltest.NoError(v.t, time.Minute, func() error {
		got, err := ask(v.base, "GET", path, "")
		if strings.Contains(got, text) == without {
			return fmt.Errorf("%q is wanted there %t: %v %.900s", text, !without, err, got)
		}
		return nil
	}, "%s", path)
}

func (v *viewer) open(path, selector, text string) {
	v.t.Helper()
	v.run(chromedp.Navigate(v.base + "/ui" + path))
	v.see(selector, text)
}

// environment is what the commands of the web UI expect.
func environment(t *testing.T, base string, secrets, monitor, jobs int) []string {
	t.Helper()
	r, err := http.Post(base+"/ui/api/as/monitor/api/core/v2/apikeys", "", strings.NewReader(`{"username":"admin"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	at := "http://127.0.0.1:%d"
	return []string{"CORBEL_HTTP_ADDR=" + strings.TrimPrefix(base, "http://"), "CORBEL_TOKEN=root", "VAULT_TOKEN=root",
		"VAULT_ADDR=" + fmt.Sprintf(at, secrets), "SENSU_API_URL=" + fmt.Sprintf(at, monitor),
		"SENSU_API_KEY=" + path.Base(r.Header.Get("Location")), "NOMAD_ADDR=" + fmt.Sprintf(at, jobs)}
}

// TestWrites presses each write of the web UI by keyboard: it says what it hits, does it, and the command that it shows
// does the same where it is pasted.
func TestWrites(t *testing.T) {
	base, env := startViewed(t)
	v := view(t, base)
	v.env = env
	for _, part := range []struct {
		name  string
		write func()
	}{{"keys", v.writesKeys}, {"intentions", v.writesIntentions}, {"secrets", v.writesSecrets},
		{"stored", v.writesStored},
		{"incidents", v.writesIncidents}, {"reads", v.readsAsShown},
		{"rights", v.asksRights}, {"jobs", v.writesJobs},
		// Leases are counted each 10 s: last, since then there is nothing to wait for.
		{"leases", v.revokesLeases},
		// It ends the session that the others have.
		{"elsewhere", v.logsInElsewhere}} {
		t.Run(part.name, func(t *testing.T) {
			v.t = t
			part.write()
		})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
}

// writesKeys edits a key that somebody else changes meanwhile, then exports, deletes and imports.
func (v *viewer) writesKeys() {
	v.t.Helper()
	v.open("/kv/config/web/limits?key=1", "pre.value", "requests")
	v.push("Edit", "")
	v.see("pre.curl", "cas=")
	if _, err := ask(v.base, "PUT", "/v1/kv/config/web/limits", "theirs"); err != nil {
		v.t.Fatal(err)
	}
	v.reach("Value", "")
	v.keys("mine")
	v.see(".difference ins", "mine")
	v.push("Save", "")
	v.see("[role=alert]", "changed")
	v.holds("/v1/kv/config/web/limits?raw", "theirs", false)

	folder := v.t.TempDir()
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
			Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder})
		return err
	}))
	v.open("/kv/config/", ".row", "web/")
	v.push("Export", "")
	var list []struct{ Key, Value string }
	file := filepath.Join(folder, "config.json")
	polltest.NoError(v.t, time.Minute, func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &list)
	}, "the file of the export")
	if len(list) != 3 {
		v.t.Errorf("%d keys were exported, want 3: %v", len(list), list)
	}
	v.open("/kv/config/web/limits?key=1", "pre.value", "theirs")
	v.push("Delete", "")
	v.twin("Delete config/web/limits")
	v.holds("/v1/kv/config?keys", "config/web/limits", true)
	v.open("/kv/config/", ".row", "web/")
	v.reach("Import", "")
	v.run(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		doc, err := cdp.Call(ctx, tab, dom.GetDocument, dom.GetDocumentParams{})
		if err != nil {
			return err
		}
		field, err := cdp.Call(ctx, tab, dom.QuerySelector, dom.QuerySelectorParams{NodeID: doc.Root.NodeID,
			Selector: "input[type=file]"})
		if err != nil {
			return err
		}
		_, err = cdp.Call(ctx, tab, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: []string{file},
			NodeID: field.NodeID})
		return err
	}))
	v.confirmed("3 keys")
	v.holds("/v1/kv/config/web/limits?raw", "theirs", false)
}

// writesStored edits a config entry and deletes it.
func (v *viewer) writesStored() {
	v.t.Helper()
	v.open("/entries/service-defaults/mail", "pre.value", `"Protocol": "tcp"`)
	v.push("Edit", "")
	v.reach("Value", "")
	v.run(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	v.keys(`{"Kind":"service-defaults","Name":"mail","Protocol":"http"}`)
	v.see(".difference ins", "http")
	v.push("Save", "")
	v.see("pre.value", `"Protocol": "http"`)
	v.holds("/v1/config/service-defaults/mail", `"Protocol": "http"`, false)
	v.push("Delete", "")
	v.confirmed("Delete service-defaults mail")
	v.holds("/v1/config/service-defaults", "mail", true)
}

// revokesLeases ends the leases of a role: the question says first which.
func (v *viewer) revokesLeases() {
	v.t.Helper()
	for _, w := range [][2]string{{"sys/mounts/pki", `{"type":"pki"}`},
		{"pki/root/generate/internal", `{"common_name":"root","key_type":"ec"}`},
		{"pki/roles/web", `{"allow_any_name":true,"generate_lease":true,"key_type":"ec"}`},
		{"pki/issue/web", `{"common_name":"a.example","ttl":"30m"}`}} {
		if _, err := ask(v.base, "POST", "/ui/api/as/secrets/v1/"+w[0], w[1]); err != nil {
			v.t.Fatal(err)
		}
	}
	v.open("/secrets", ".grid", "issue/web")
	v.see("h2", "What ends next")
	v.push("Revoke", "issue/web")
	v.confirmed("It ends 1 lease now")
	v.holds("/ui/api/as/secrets/v1/sys/leases/lookup/pki/issue/web?list=true", "keys", true)
}

// readsAsShown runs the command that each screen has beside it, as somebody who pasted it into a shell.
func (v *viewer) readsAsShown() {
	v.t.Helper()
	for _, at := range []string{"", "/services", "/services/web", "/nodes", "/topology", "/topology?s=db",
		"/propagation", "/kv/config/", "/kv/app/motd?key=1", "/queries", "/secrets", "/secrets?mount=secret%2F",
		"/incidents", "/jobs", "/usage", "/cluster"} {
		v.open(at, ".twin", "Copy as curl")
		command, err := evaluate[string](v, "document.querySelector('.twin').title")
		if err != nil {
			v.t.Fatal(err)
		}
		if _, err := exec.LookPath("curl"); err != nil {
			loud.Skip(v.t, "the commands that the web UI shows: there is no curl")
		}
		sh := exec.CommandContext(v.t.Context(), "sh", "-c", command+" -sf")
		sh.Env = append(os.Environ(), v.env...)
		if out, err := sh.CombinedOutput(); err != nil || len(out) == 0 {
			v.t.Errorf("%s: %s\n%s %v", at, command, out, err)
		}
	}
}

func (v *viewer) writesIntentions() {
	v.t.Helper()
	const check = "/v1/connect/intentions/check?source=web&destination=db"
	v.open("/topology", ".grid", "denied")
	v.push("Allow", "denied")
	v.confirmed("Allow web to call db")
	v.holds(check, "true", false)
	v.see(".grid", "web")
	v.reach("from", "")
	v.keys("web" + kb.Tab + "db" + kb.Enter)
	v.see("[role=status]", "may call")
	v.push("Deny", "may call")
	v.twin("web")
	v.holds(check, "false", false)
}

func (v *viewer) writesSecrets() {
	v.t.Helper()
	for _, value := range []string{"second", "third"} {
		if _, err := ask(v.base, "POST", "/ui/api/as/secrets/v1/secret/data/web/db",
			`{"data":{"password":"`+value+`"}}`); err != nil {
			v.t.Fatal(err)
		}
	}
	v.open("/secrets?mount=secret%2F&q=db", ".grid", "web/db")
	v.push("web/db", "")
	v.see(".grid", "Destroy")
	v.push("Delete", "")
	v.confirmed("version 3 of")
	v.see(".grid", "deleted")
	v.push("Undelete", "")
	v.twin("version 3 of")
	v.holds("/ui/api/as/secrets/v1/secret/data/web/db", "third", false)
	v.run(chromedp.Reload())
	v.see(".grid", "Destroy")
	v.push("Destroy", "")
	v.confirmed("version 3 of")
	v.see(".grid", "destroyed")
	v.holds("/ui/api/as/secrets/v1/secret/metadata/web/db", `"destroyed":true`, false)
}

// logsInElsewhere is sent here by another program, logs in, and is sent back with a code that the program trades for
// tokens.
func (v *viewer) logsInElsewhere() {
	v.t.Helper()
	const secrets = "/ui/api/as/secrets/v1/"
	back := v.base + "/ui/back" // a page of this server: the browser may ask no other
	for _, w := range [][2]string{{"sys/auth/userpass", `{"type":"userpass"}`},
		{"auth/userpass/users/eve", `{"password":"a long password","token_policies":"default"}`},
		{"identity/oidc/client/wiki", `{"redirect_uris":["` + back + `"],"assignments":["allow_all"]}`}} {
		if _, err := ask(v.base, "POST", secrets+w[0], w[1]); err != nil {
			v.t.Fatal(err)
		}
	}
	text, err := ask(v.base, "GET", secrets+"identity/oidc/client/wiki", "")
	var client struct {
		Data struct {
			ID     string `json:"client_id"`
			Secret string `json:"client_secret"`
		}
	}
	if err != nil || json.Unmarshal([]byte(text), &client) != nil {
		v.t.Fatalf("the client: %s, %v", text, err)
	}
	v.givesPasscode()
	query := url.Values{"client_id": {client.Data.ID}, "redirect_uri": {back}, "response_type": {"code"},
		"scope": {"openid"}, "state": {"s&t"}}
	v.run(chromedp.Navigate(v.base + "/ui/vault/identity/oidc/provider/default/authorize?" + query.Encode()))
	var sent *url.URL
	polltest.Until(v.t, func() bool {
		at, err := evaluate[string](v, "location.href")
		if err != nil || !strings.HasPrefix(at, back+"?") {
			return false
		}
		sent, err = url.Parse(at)
		return err == nil
	}, "the way back to the program")
	if sent.Query().Get("state") != "s&t" {
		v.t.Errorf("it comes back to %s", sent)
	}
	form, err := json.Marshal(map[string]string{"grant_type": "authorization_code", "code": sent.Query().Get("code"),
		"redirect_uri": back, "client_id": client.Data.ID, "client_secret": client.Data.Secret})
	if err != nil {
		v.t.Fatal(err)
	}
	if text, err = ask(v.base, "POST", secrets+"identity/oidc/provider/default/token", string(form)); err != nil ||
		!strings.Contains(text, `"id_token":`) {
		v.t.Errorf("the tokens: %s, %v", text, err)
	}
}

// givesPasscode logs eve in, whose logins need a second factor: not with a wrong passcode.
func (v *viewer) givesPasscode() {
	v.t.Helper()
	data := func(method, path, body string) map[string]any {
		v.t.Helper()
		var in struct{ Data map[string]any }
		text, err := ask(v.base, method, "/ui/api/as/secrets/v1/"+path, body)
		if err == nil && text != "" {
			err = json.Unmarshal([]byte(text), &in)
		}
		if err != nil {
			v.t.Fatalf("%s %s: %v", path, text, err)
		}
		return in.Data
	}
	at := data("GET", "sys/auth/userpass", "")["accessor"]
	eve := data("POST", "identity/entity", `{"name":"eve"}`)["id"]
	data("POST", "identity/entity-alias", fmt.Sprintf(`{"name":"eve","canonical_id":%q,"mount_accessor":%q}`, eve, at))
	method := data("POST", "identity/mfa/method/totp", `{"issuer":"Corbel","method_name":"app"}`)["method_id"]
	data("POST", "identity/mfa/login-enforcement/people", fmt.Sprintf(`{"mfa_method_ids":%q,"identity_entity_ids":%q}`,
		method, eve))
	key := data("POST", "identity/mfa/method/totp/admin-generate", fmt.Sprintf(`{"method_id":%q,"entity_id":%q}`, method,
		eve))["url"]
	data("POST", "sys/mounts/phone", `{"type":"totp"}`)
	data("POST", "phone/keys/eve", fmt.Sprintf(`{"url":%q}`, key))

	v.run(chromedp.Navigate(v.base + "/ui/login"))
	v.see("h1", "Log in")
	v.run(chromedp.Focus("input[name=user]"))
	v.keys("eve" + kb.Tab + "a long password" + kb.Enter)
	v.see("label:focus-within", "Passcode of app")
	v.axe("the form for a passcode")
	v.keys("none" + kb.Enter)
	v.see("[role=alert]", "the passcode is wrong")
	v.see("label:focus-within", "Passcode of app")
	v.keys(fmt.Sprint(data("GET", "phone/code/eve", "")["code"]) + kb.Enter)
	v.see(".foot", "eve")
}

// writesIncidents acknowledges one incident, resolves another and lifts a silence.
func (v *viewer) writesIncidents() {
	v.t.Helper()
	const silence = "entity:host-03:disk"
	v.open("/incidents?q=97", ".row", "97 % full")
	v.keys("j" + "a")
	v.confirmed("Acknowledge disk on host-03")
	v.holds("/ui/api/topic/silences", silence, false)
	v.see(".row", "silenced")
	v.push("Lift", silence)
	v.twin(silence)
	v.holds("/ui/api/topic/silences", silence, true)
	v.keys("j" + "r")
	v.confirmed("Resolve disk on host-03")
	v.holds("/ui/api/topic/incidents", "97 % full", true)
}

func (v *viewer) asksRights() {
	v.t.Helper()
	v.open("/cluster", ".grid", "catalog")
	v.reach("name", "")
	v.keys("app/" + kb.Enter)
	v.see("[role=status]", "yes: read key app/")
	v.push("Who may?", "May this session")
	v.see("main [role=status]", " may")
}

// canaryJob is a job whose changes wait for somebody who lets them go on.
func canaryJob(n int) string {
	return fmt.Sprintf(`{"Job":{"ID":"canary","Name":"canary","Type":"service","Datacenters":["*"],"TaskGroups":[{`+
		`"Name":"app","Count":1,"Update":{"MaxParallel":1,"Canary":1,"MinHealthyTime":10000000,`+
		`"HealthCheck":"task_states","HealthyDeadline":60000000000,"ProgressDeadline":120000000000},"Tasks":[{`+
		`"Name":"tick","Driver":"raw_exec","Config":{"command":"/bin/sh","args":["-c",`+
		`"echo %d; while :; do sleep 1; done"]},"Resources":{"CPU":20,"MemoryMB":16}}]}]}}`, n)
}

func (v *viewer) writesJobs() {
	v.t.Helper()
	const job = "/ui/api/as/jobs/v1/job/canary"
	run := func(n int) {
		v.t.Helper()
		if _, err := ask(v.base, "PUT", "/ui/api/as/jobs/v1/jobs", canaryJob(n)); err != nil {
			v.t.Fatal(err)
		}
	}
	run(1)
	v.holds(job+"/deployment", `"Status":"successful"`, false)
	run(2)
	v.open("/jobs/default/canary", "main", "Promote")
	v.holds(job+"/deployment", `"HealthyAllocs":1`, false) // only healthy canaries are promoted
	v.push("Promote", "")
	v.confirmed("1 canar")
	v.holds(job+"/deployment", `"Promoted":true`, false)
	v.holds(job+"/deployment", `"Status":"successful"`, false)
	run(3)
	v.open("/jobs/default/canary", "main", "Promote")
	v.push("Fail", "")
	v.twin("Fail the rollout of canary")
	v.holds(job+"/deployment", `"Status":"failed"`, false)
	v.open("/jobs/default/canary", "main", "How many run")
	v.reach("Count of app", "")
	v.keys(kb.End + kb.Backspace + "2" + kb.Enter)
	v.confirmed("From 1 to 2")
	v.holds(job, `"Count":2`, false)
	v.open("/jobs", ".grid", "Drain")
	v.push("Drain", "")
	v.confirmed("Drain")
	v.see(".grid", "draining")
	v.push("Stop draining", "")
	v.twin("Stop draining")
	v.holds("/ui/api/as/jobs/v1/nodes", `"SchedulingEligibility":"eligible"`, false)
	v.open("/jobs/default/canary", "main", "Stop")
	v.push("Stop", "")
	v.confirmed("Stop canary")
	v.holds(job, `"Stop":true`, false)
}
