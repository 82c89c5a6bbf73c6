package keeper

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/onetime"
	"corbel.dev/corbel/secrets/task"
)

// authenticator makes the codes of one entity and method, as an app does that read the URL.
type authenticator struct{ onetime.Key }

func (a *authenticator) code(t testing.TB, at time.Time) string {
	t.Helper()
	code, err := a.Code(a.Step(at))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// method makes a TOTP method and returns its ID.
func (h *house) method(body string) string {
	h.t.Helper()
	return fmt.Sprint(field(h.t, h.ok(secrets.Update, "identity/mfa/method/totp", body), "method_id"))
}

// enrol makes the key of an entity for a method.
func (h *house) enrol(method, entity string) *authenticator {
	h.t.Helper()
	r := h.ok(secrets.Update, "identity/mfa/method/totp/admin-generate",
		text(h.t, map[string]string{"method_id": method, "entity_id": entity}))
	u, err := url.Parse(fmt.Sprint(field(h.t, r, "url")))
	if err != nil || u.Query().Get("secret") == "" || fmt.Sprint(field(h.t, r, "barcode")) == "" {
		h.t.Fatalf("the key is shown as %s, %v", r.Data, err)
	}
	return &authenticator{onetime.Key{Secret: u.Query().Get("secret"), Period: 30, Algorithm: "SHA1", Digits: 6}}
}

func (h *house) enforce(name string, fields map[string]any) {
	h.t.Helper()
	h.ok(secrets.Update, "identity/mfa/login-enforcement/"+name, text(h.t, fields))
}

// first logs in with the password alone.
func (h *house) first(name string, factors ...string) (*task.Reply, error) {
	return h.Handle(h.t.Context(), &secrets.Request{Op: secrets.Update, Path: "auth/userpass/login/" + name,
		Body: []byte(`{"password":"pw"}`), Caller: secrets.Caller{Factors: factors}})
}

// wants logs in and returns the request that waits for a second factor.
func (h *house) wants(name string) *task.Demand {
	h.t.Helper()
	r, err := h.first(name)
	if err != nil || r.Demand == nil || r.Token != nil {
		h.t.Fatalf("the login of %s: %+v, %v; want a demand", name, r, err)
	}
	return r.Demand
}

func (h *house) second(id, method, code string) (*task.Reply, error) {
	h.t.Helper()
	return h.as("", secrets.Update, "sys/mfa/validate", text(h.t, map[string]any{"mfa_request_id": id,
		"mfa_payload": map[string]any{method: []string{code}}}))
}

func TestMFALogin(t *testing.T) {
	h := newHouse(t)
	h.users("ann", "bob")
	ann := h.loginAs("ann").Entity
	m := h.method(`{"issuer":"Corbel","method_name":"app"}`)
	key := h.enrol(m, ann)
	h.enforce("people", map[string]any{"mfa_method_ids": m, "auth_method_types": "userpass"})

	// in two requests
	d := h.wants("ann")
	if any := d.Constraints["people"].Any; len(any) != 1 || any[0].ID != m || any[0].Name != "app" || !any[0].Passcode ||
		any[0].Type != "totp" {
		t.Errorf("the demand is %+v", d)
	}
	if _, err := h.second(d.ID, m, "000000x"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a wrong code: %v", err)
	}
	r, err := h.second(d.ID, m, key.code(t, h.now))
	if err != nil || r.Token == nil || r.Token.Entity != ann || r.Token.Path != "auth/userpass/login/ann" ||
		r.Mount.Type != "userpass" {
		t.Fatalf("the right code: %+v, %v", r, err)
	}
	if _, err := h.as(r.Token.ID, secrets.Read, "auth/token/lookup-self", ""); err != nil {
		t.Errorf("the token opens nothing: %v", err)
	}
	if _, err := h.second(d.ID, m, key.code(t, h.now)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a request that has its token: %v", err)
	}
	// a code is good once, also in another login and after a new unsealing
	d = h.wants("ann")
	if _, err := h.second(d.ID, m, key.code(t, h.now)); err == nil || !strings.Contains(err.Error(), "already used") {
		t.Errorf("a code again: %v", err)
	}
	h.Seal()
	h.unseal()
	if _, err := h.second(d.ID, "app", key.code(t, h.now)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a request from before the seal: %v", err)
	}
	d = h.wants("ann")
	if _, err := h.second(d.ID, "app", key.code(t, h.now)); err == nil || !strings.Contains(err.Error(), "already used") {
		t.Errorf("a code again after unsealing: %v", err)
	}
	// in one request, by the method's name
	h.now = h.now.Add(time.Minute)
	if r, err = h.first("ann", "app:"+key.code(t, h.now)); err != nil || r.Token == nil {
		t.Errorf("a login in one request: %+v, %v", r, err)
	}
	if _, err = h.first("ann", "app:"+key.code(t, h.now)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a code again in one request: %v", err)
	}
	if _, err = h.first("ann", "other:123456"); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a code of another method: %v", err)
	}
	// a request ends after five minutes
	d = h.wants("ann")
	h.now = h.now.Add(5*time.Minute + time.Second)
	if _, err := h.second(d.ID, m, key.code(t, h.now)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a request that has ended: %v", err)
	}
	// bob was never there: he is made an entity, so that somebody can give him a key
	d = h.wants("bob")
	if _, err := h.second(d.ID, m, "123456"); err == nil || !strings.Contains(err.Error(), "has no key") {
		t.Errorf("without a key: %v", err)
	}
	found := h.ok(secrets.Update, "identity/lookup/entity", text(t, map[string]string{"alias_name": "bob",
		"alias_mount_accessor": h.gate.Load().Mounts.Get("auth/userpass/").Accessor}))
	bob := fmt.Sprint(field(t, found, "id"))
	other := h.enrol(m, bob)
	r, err = h.second(d.ID, m, "passcode="+other.code(t, h.now))
	if err != nil || r.Token == nil || r.Token.Entity != bob {
		t.Errorf("bob with a key: %+v, %v", r, err)
	}
	// an entity that went takes its key along, and its logins that wait
	d = h.wants("bob")
	h.ok(secrets.Delete, "identity/entity/id/"+bob, "")
	h.now = h.now.Add(time.Minute)
	if _, err := h.second(d.ID, m, other.code(t, h.now)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("the key of who went: %v", err)
	}
	h.ok(secrets.Delete, "identity/mfa/login-enforcement/people", "")
	h.loginAs("bob")
}

// Of several enforcements each is to be satisfied, and each names logins in its own way.
func TestMFAEnforcements(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann", "bob")
	ann, bob := h.loginAs("ann").Entity, h.loginAs("bob").Entity
	one, two := h.method(`{"issuer":"one"}`), h.method(`{"issuer":"two"}`)
	keys := map[string]*authenticator{one: h.enrol(one, ann), two: h.enrol(two, ann)}
	group := h.made("identity/group", text(t, map[string]any{"name": "web", "member_entity_ids": []string{ann}}))
	h.enforce("a", map[string]any{"mfa_method_ids": []string{one}, "identity_entity_ids": []string{ann}})
	h.enforce("b", map[string]any{"mfa_method_ids": []string{one, two}, "identity_group_ids": []string{group}})
	h.enforce("c", map[string]any{"mfa_method_ids": []string{two}, "auth_method_accessors": []string{mount}})
	if got := h.wants("ann").Constraints; len(got) != 3 || len(got["b"].Any) != 2 {
		t.Errorf("ann is asked for %+v", got)
	}
	if got := h.wants("bob").Constraints; len(got) != 1 {
		t.Errorf("bob is asked for %+v", got)
	}
	if _, err := h.first("ann", one+":"+keys[one].code(t, h.now)); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("with one of two factors: %v", err)
	}
	// what was right and did not suffice is not used up
	if r, err := h.first("ann", one+":"+keys[one].code(t, h.now), two+":"+keys[two].code(t, h.now)); err != nil ||
		r.Token == nil {
		t.Errorf("with both: %+v, %v", r, err)
	}
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/mfa/method/totp/"+one, "") // in use
	for name, fields := range map[string]map[string]any{
		"no methods":        {"auth_method_types": "userpass"},
		"nobody":            {"mfa_method_ids": one},
		"an unknown method": {"mfa_method_ids": "x", "auth_method_types": "userpass"},
		"an unknown type":   {"mfa_method_ids": one, "auth_method_types": "ldap"},
		"a secrets engine":  {"mfa_method_ids": one, "auth_method_types": "kv"},
		"an unknown entity": {"mfa_method_ids": one, "identity_entity_ids": "x"},
		"an unknown group":  {"mfa_method_ids": one, "identity_group_ids": bob},
	} {
		if _, err := h.as(h.root, secrets.Update, "identity/mfa/login-enforcement/d", text(t, fields)); !errkind.Is(err,
			errkind.Invalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	// tokens that are no logins are asked for nothing
	h.token(`{"policies":["default"]}`)
}

// After too many wrong codes none is looked at for a while, for longer each time.
func TestMFAAttempts(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	ann := h.loginAs("ann").Entity
	m := h.method(`{"issuer":"Corbel","max_validation_attempts":2}`)
	key := h.enrol(m, ann)
	h.enforce("people", map[string]any{"mfa_method_ids": m, "identity_entity_ids": ann})
	try := func(code string) error {
		_, err := h.first("ann", m+":"+code)
		return err
	}
	for _, block := range []time.Duration{30 * time.Second, time.Minute} {
		for range 2 {
			if err := try("x"); err == nil || !strings.Contains(err.Error(), "is wrong") {
				t.Fatalf("a wrong code: %v", err)
			}
		}
		h.now = h.now.Add(block - time.Second)
		if err := try(key.code(t, h.now)); err == nil || !strings.Contains(err.Error(), "maximum TOTP validation attempts") {
			t.Errorf("a right code while none is looked at: %v", err)
		}
		h.now = h.now.Add(time.Second)
	}
	if err := try(key.code(t, h.now)); err != nil {
		t.Errorf("a right code afterwards: %v", err)
	}
}

// One code that many bring at once makes one token.
func TestMFACodeAtOnce(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	ann := h.loginAs("ann").Entity
	m := h.method(`{"issuer":"Corbel"}`)
	key := h.enrol(m, ann)
	h.enforce("people", map[string]any{"mfa_method_ids": m, "identity_entity_ids": ann})
	code := key.code(t, h.now)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = h.wants("ann").ID
	}
	var made atomic.Int64
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			var r *task.Reply
			var err error
			if i%2 == 0 {
				r, err = h.second(ids[i/2], m, code)
			} else {
				r, err = h.first("ann", m+":"+code)
			}
			if err == nil && r.Token != nil {
				made.Add(1)
			}
		})
	}
	group.Wait()
	if made.Load() != 1 {
		t.Errorf("%d tokens of one code", made.Load())
	}
}

func TestMFAMethods(t *testing.T) {
	h := newHouse(t)
	h.refused(errkind.NotFound, h.root, secrets.List, "identity/mfa/method/", "")
	m := h.method(`{"issuer":"Corbel","method_name":"app","period":"1m","algorithm":"SHA256","digits":8,"skew":0,` +
		`"key_size":32,"qr_size":0,"max_validation_attempts":3}`)
	for _, path := range []string{"identity/mfa/method/" + m, "identity/mfa/method/totp/" + m} {
		r := h.ok(secrets.Read, path, "")
		for name, want := range map[string]string{"id": m, "type": "totp", "name": "app", "issuer": "Corbel", "period": "60",
			"algorithm": "SHA256", "digits": "8", "skew": "0", "key_size": "32", "qr_size": "0", "max_validation_attempts": "3",
			"namespace_id": "root", "namespace_path": ""} {
			if got := fmt.Sprint(field(t, r, name)); got != want {
				t.Errorf("%s: %s is %s, want %s", path, name, got, want)
			}
		}
	}
	h.ok(secrets.Update, "identity/mfa/method/totp/"+m, `{"issuer":"Other"}`)
	if r := h.ok(secrets.Read, "identity/mfa/method/"+m, ""); field(t, r, "issuer") != "Other" ||
		fmt.Sprint(field(t, r, "digits")) != "8" {
		t.Errorf("after a change of the issuer: %s", r.Data)
	}
	for _, path := range []string{"identity/mfa/method/", "identity/mfa/method/totp/"} {
		if r := h.ok(secrets.List, path, ""); !strings.Contains(string(r.Data), m) {
			t.Errorf("%s: %s", path, r.Data)
		}
	}
	for name, body := range map[string]string{"no issuer": `{}`, "algorithm": `{"issuer":"i","algorithm":"MD5"}`,
		"digits": `{"issuer":"i","digits":7}`, "period": `{"issuer":"i","period":0}`, "skew": `{"issuer":"i","skew":2}`,
		"size": `{"issuer":"i","key_size":0}`, "picture": `{"issuer":"i","qr_size":5000}`,
		"attempts": `{"issuer":"i","max_validation_attempts":0}`, "a name twice": `{"issuer":"i","method_name":"app"}`,
		"a name with a slash": `{"issuer":"i","method_name":"a/b"}`, "an unknown id": `{"issuer":"i","method_id":"x"}`,
		"a wrong type": `{"issuer":"i","digits":"many"}`} {
		if _, err := h.as(h.root, secrets.Update, "identity/mfa/method/totp", body); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/mfa/method/duo", `{}`)
	for _, body := range []string{`{}`, `{"mfa_request_id":"x"}`, `{"mfa_request_id":"x","mfa_payload":[]}`,
		`{"mfa_request_id":"x","mfa_payload":{"m":{}}}`, `{"mfa_request_id":"x","mfa_payload":"no"}`} {
		h.refused(errkind.Invalid, "", secrets.Update, "sys/mfa/validate", body)
	}
	h.refused(errkind.Denied, "", secrets.Update, "sys/mfa/validate", `{"mfa_request_id":"x","mfa_payload":{"m":"1"}}`)
	h.ok(secrets.Delete, "identity/mfa/method/totp/"+m, "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "identity/mfa/method/"+m, "")
	// who has an entity makes a key for it, once
	h.users("ann")
	m = h.method(`{"issuer":"Corbel"}`)
	h.policy("app", `path "identity/mfa/method/totp/generate" { capabilities = ["update"] }`)
	ann := h.loginAs("ann")
	own := `{"method_id":"` + m + `"}`
	if r, err := h.as(ann.ID, secrets.Update, "identity/mfa/method/totp/generate", own); err != nil ||
		!strings.Contains(string(r.Data), "otpauth://totp/Corbel:") {
		t.Errorf("a key of one's own: %+v, %v", r, err)
	}
	if r, err := h.as(ann.ID, secrets.Update, "identity/mfa/method/totp/generate", own); err != nil || r.Data != nil ||
		len(r.Warnings) != 1 {
		t.Errorf("a second key of one's own: %+v, %v", r, err)
	}
	h.ok(secrets.Update, "identity/mfa/method/totp/admin-destroy",
		text(t, map[string]string{"method_id": m, "entity_id": ann.Entity}))
	h.enrol(m, ann.Entity)
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/mfa/method/totp/generate", own) // root is no entity
}

// A merge keeps the second factor, and a namespace has methods and enforcements of its own.
func TestMFAMergeAndNamespaces(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	ann := h.loginAs("ann").Entity
	m := h.method(`{"issuer":"Corbel"}`)
	key := h.enrol(m, ann)
	to := h.made("identity/entity", `{"name":"to"}`)
	h.ok(secrets.Update, "identity/entity/merge", text(t, map[string]any{"from_entity_ids": []string{ann},
		"to_entity_id": to}))
	h.enforce("people", map[string]any{"mfa_method_ids": m, "identity_entity_ids": to})
	if r, err := h.first("ann", m+":"+key.code(t, h.now)); err != nil || r.Token == nil || r.Token.Entity != to {
		t.Errorf("after the merge: %+v, %v", r, err)
	}
	h.ok(secrets.Update, "sys/namespaces/team", "")
	h.refused(errkind.NotFound, h.root, secrets.List, "team/identity/mfa/method/", "")
	h.ok(secrets.Update, "team/sys/auth/userpass", `{"type":"userpass"}`)
	h.ok(secrets.Update, "team/auth/userpass/users/eve", text(t, map[string]string{"password_hash": quick(t)}))
	login := func(factors ...string) (*task.Reply, error) {
		return h.Handle(t.Context(), &secrets.Request{Op: secrets.Update, Path: "team/auth/userpass/login/eve",
			Body: []byte(`{"password":"pw"}`), Caller: secrets.Caller{Factors: factors}})
	}
	r, err := login()
	if err != nil || r.Token == nil {
		t.Fatalf("a login in a namespace without enforcement: %+v, %v", r, err)
	}
	eve := r.Token.Entity
	own := fmt.Sprint(field(t, h.ok(secrets.Update, "team/identity/mfa/method/totp", `{"issuer":"team"}`), "method_id"))
	h.ok(secrets.Update, "team/identity/mfa/login-enforcement/all", text(t, map[string]any{"mfa_method_ids": own,
		"auth_method_types": "userpass"}))
	h.ok(secrets.Update, "team/identity/mfa/method/totp/admin-generate", text(t, map[string]string{"method_id": own,
		"entity_id": eve}))
	if r, err = login(); err != nil || r.Demand == nil {
		t.Fatalf("a login in a namespace with one: %+v, %v", r, err)
	}
	if _, err := h.second(r.Demand.ID, own, "123456"); !errkind.Is(err, errkind.Denied) ||
		!strings.Contains(err.Error(), "no login waits") {
		t.Errorf("the namespace's login, asked for in the root one: %v", err)
	}
	if _, err := h.as("", secrets.Update, "team/sys/mfa/validate", text(t, map[string]any{"mfa_request_id": r.Demand.ID,
		"mfa_payload": map[string]any{own: "x"}})); err == nil || !strings.Contains(err.Error(), "is wrong") {
		t.Errorf("a wrong code in the namespace: %v", err)
	}
}
