package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
	"corbel.dev/corbel/secrets/token"
)

// in asks in a namespace, as the header has it.
func (h *house) in(space, token string, op secrets.Operation, path, body string) (*task.Reply, error) {
	return h.Handle(h.t.Context(), &secrets.Request{Op: op, Path: path, Body: []byte(body),
		Namespace: secrets.Namespace{Space: space}, Caller: secrets.Caller{Token: token}})
}

func (h *house) okIn(space string, op secrets.Operation, path, body string) *task.Reply {
	h.t.Helper()
	r, err := h.in(space, h.root, op, path, body)
	if err != nil {
		h.t.Fatalf("%s: %v %s %s: %v", space, op, path, body, err)
	}
	return r
}

// allIn makes a token of a namespace that may do everything there.
func (h *house) allIn(space string) string {
	h.t.Helper()
	h.okIn(space, secrets.Update, "sys/policies/acl/all", `{"policy":"path \"*\" { capabilities = [\"create\", \"read\", `+
		`\"update\", \"patch\", \"delete\", \"list\", \"scan\", \"sudo\"] }"}`)
	return h.okIn(space, secrets.Update, "auth/token/create", `{"policies":["all"]}`).Token.ID
}

func TestNamespaces(t *testing.T) {
	h := newHouse(t)
	h.refused(errkind.NotFound, h.root, secrets.List, "sys/namespaces/", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/namespaces/team", "")
	made := h.ok(secrets.Update, "sys/namespaces/team", `{"custom_metadata":{"a":"1","b":"2"}}`)
	if field(t, made, "path") != "team/" || len(field(t, made, "id").(string)) != 6 {
		t.Errorf("made %s", made.Data)
	}
	h.ok(secrets.Patch, "sys/namespaces/team", `{"custom_metadata":{"a":null,"c":"3"}}`)
	if got := field(t, h.ok(secrets.Read, "sys/namespaces/team", ""), "custom_metadata"); fmt.Sprint(got) !=
		"map[b:2 c:3]" {
		t.Errorf("after a patch: %v", got)
	}
	h.okIn("team/", secrets.Update, "sys/namespaces/app", "")
	h.ok(secrets.Update, "sys/namespaces/team/app/deep", "")
	if got := field(t, h.ok(secrets.List, "sys/namespaces/", ""), "keys"); fmt.Sprint(got) != "[team/]" {
		t.Errorf("listed %v", got)
	}
	if got := field(t, h.ok(secrets.Scan, "sys/namespaces/", ""), "keys"); fmt.Sprint(got) !=
		"[team/ team/app/ team/app/deep/]" {
		t.Errorf("scanned %v", got)
	}
	if got := field(t, h.okIn("team/", secrets.List, "sys/namespaces/", ""), "keys"); fmt.Sprint(got) != "[app/]" {
		t.Errorf("listed %v", got)
	}
	for _, bad := range []string{"sys", "root", "auth", "identity", "cubbyhole", "audit", "a b", "a*", "..", ".",
		"team//x", "none/x", "secret", "secret/x", strings.Repeat("a/", 20), "team/" + strings.Repeat("x", 600)} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/namespaces/"+bad, "")
	}
	h.refused(errkind.Invalid, h.root, secrets.Delete, "sys/namespaces/team", "") // it has one below it
	// a mount and a namespace are never at one path
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/mounts/team", `{"type":"kv"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "sys/mounts/team/x", `{"type":"kv"}`)
	if _, err := h.in("team/", h.root, secrets.Update, "sys/mounts/app/deep", `{"type":"kv"}`); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("a mount at a namespace below: %v", err)
	}
	// what is of the root namespace alone
	for _, path := range []string{"sys/seal", "sys/rotate", "sys/audit/x", "sys/config/cors", "sys/quotas/config",
		"sys/key-status", "sys/host-info", "sys/in-flight-req", "sys/nothing", "sys/metrics", "sys/plugins/catalog"} {
		for _, op := range []secrets.Operation{secrets.Read, secrets.Update, secrets.List, secrets.Delete} {
			if _, err := h.in("team/", h.root, op, path, ""); err == nil || errkind.Text(err) !=
				"operation unavailable in namespaces" {
				t.Errorf("%v %s: %v", op, path, err)
			}
		}
	}
	for range 2 { // before a restart, and after it
		h.okIn("team/app/", secrets.Update, "sys/mounts/kv"+fmt.Sprint(len(h.keysBelow(tables.SpaceMountPrefix))),
			`{"type":"kv"}`)
		h.okIn("team/app/", secrets.Update, "kv0/a", `{"x":"1"}`)
		if got := h.ok(secrets.Read, "team/app/kv0/a", "").Data; string(got) != `{"x":"1"}` {
			t.Errorf("by its path: %s", got)
		}
		if got := h.okIn("team/", secrets.Read, "app/kv0/a", "").Data; string(got) != `{"x":"1"}` {
			t.Errorf("by header and path: %s", got)
		}
		h.refused(errkind.NotFound, h.root, secrets.Read, "kv0/a", "")
		for _, no := range [][2]string{{"none/", "kv0/a"}, {"secret/", "a"}, {"team/app/kv0/", "a"}, {"team//", "app/kv0/a"},
			{"team/../", "kv0/a"}} {
			if _, err := h.in(no[0], h.root, secrets.Read, no[1], ""); !errkind.Is(err, errkind.NotFound) {
				t.Errorf("%v: %v", no, err)
			}
			if _, err := h.in(no[0], "hvs.nobody", secrets.Read, no[1], ""); !errkind.Is(err, errkind.Denied) {
				t.Errorf("%v, nobody: %v", no, err)
			}
		}
		h.ok(secrets.Update, "sys/seal", "")
		h.unseal()
	}
}

// A token is of its namespace and of those below, by its own namespace's rules; never of one above or beside.
func TestTokensOfNamespaces(t *testing.T) {
	h := newHouse(t)
	for _, space := range []string{"a", "a/c", "b"} {
		h.ok(secrets.Update, "sys/namespaces/"+space, "")
		h.okIn(space+"/", secrets.Update, "sys/mounts/kv", `{"type":"kv"}`)
		h.okIn(space+"/", secrets.Update, "kv/x", `{"of":"`+space+`"}`)
	}
	tokens := map[string]string{"": h.root, "a/": h.allIn("a/"), "a/c/": h.allIn("a/c/"), "b/": h.allIn("b/")}
	for of, id := range tokens {
		for _, at := range []string{"", "a/", "a/c/", "b/"} {
			path := "kv/x"
			if at == "" {
				path = "secret/x"
			}
			_, err := h.in(at, id, secrets.Read, path, "")
			if reaches := strings.HasPrefix(at, of); reaches == errkind.Is(err, errkind.Denied) {
				t.Errorf("a token of %q in %q: %v", of, at, err)
			}
			if _, by := h.as(id, secrets.Read, at+path, ""); strings.HasPrefix(at, of) && of == "" && errkind.Is(by,
				errkind.Denied) {
				t.Errorf("a token of %q at %q: %v", of, at+path, by)
			}
		}
	}
	if id := tokens["a/"]; token.SpaceOf(id) == "" {
		t.Errorf("the id %s names no namespace", id)
	}
	self, err := h.in("a/", tokens["a/"], secrets.Read, "auth/token/lookup-self", "")
	if err != nil || field(t, self, "namespace_path") != "a/" || field(t, self, "path") != "auth/token/create" {
		t.Errorf("it is %+v, %v", self, err)
	}
	// A parent's rules are from its own namespace.
	h.ok(secrets.Update, "sys/policies/acl/below", `{"policy":"path \"a/kv/*\" { capabilities = [\"read\"] }\n`+
		`path \"a/auth/token/create\" { capabilities = [\"update\"] }"}`)
	below := h.token(`{"policies":["below"]}`)
	if _, err := h.in("a/", below, secrets.Read, "kv/x", ""); err != nil {
		t.Error(err)
	}
	if _, err := h.in("a/c/", below, secrets.Read, "kv/x", ""); !errkind.Is(err, errkind.Denied) {
		t.Errorf("further below: %v", err)
	}
	// A policy of the same name is another one there: nobody gets it by having that of its own namespace.
	h.okIn("a/", secrets.Update, "sys/policies/acl/below", `{"policy":"path \"*\" { capabilities = [\"read\"] }"}`)
	if _, err := h.in("a/", below, secrets.Update, "auth/token/create", `{"policies":["below"]}`); err == nil {
		t.Error("a policy of the namespace was had by one of the same name above")
	}
	made, err := h.in("a/", below, secrets.Update, "auth/token/create", `{}`)
	if err != nil || !slices.Equal(made.Token.Policies, []string{"default"}) {
		t.Errorf("without policies: %+v, %v", made, err)
	}
	for _, body := range []string{`{}`, `{"policies":["root"]}`} {
		if _, err := h.in("a/", h.root, secrets.Update, "auth/token/create", body); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("a root token in a namespace: %v", err)
		}
	}
	for _, id := range []string{"hvs", "hvb"} { // would look like a token of the root namespace
		if _, err := h.in("a/", h.root, secrets.Update, "auth/token/create", `{"policies":["all"],"id":"`+id+
			`"}`); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	own, err := h.in("a/", h.root, secrets.Update, "auth/token/create", `{"policies":["all"],"id":"abc"}`)
	if err != nil || !strings.HasPrefix(own.Token.ID, "abc.") {
		t.Fatalf("an id of one's own: %+v, %v", own, err)
	}
	h.refused(errkind.Denied, own.Token.ID, secrets.Read, "secret/x", "")
	h.refused(errkind.Denied, "abc", secrets.Read, "a/kv/x", "")
	// Above, what is below is seen; below, nothing of what is above.
	h.ok(secrets.Update, "auth/token/lookup", `{"token":"`+tokens["a/"]+`"}`)
	for _, other := range []string{h.root, tokens["b/"], below} {
		for _, path := range []string{"lookup", "renew", "revoke", "revoke-orphan"} {
			if _, err := h.in("a/", tokens["a/"], secrets.Update, "auth/token/"+path, `{"token":"`+other+
				`"}`); !errkind.Is(err, errkind.Denied) {
				t.Errorf("%s of another namespace's token: %v", path, err)
			}
		}
	}
	if !h.alive(h.root) || !h.alive(below) {
		t.Error("a token of another namespace ended")
	}
	// A child in a namespace ends with its parent above.
	h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+below+`"}`)
	if _, err := h.in("a/", made.Token.ID, secrets.Read, "auth/token/lookup-self", ""); !errkind.Is(err,
		errkind.Denied) {
		t.Errorf("the child of a token that ended: %v", err)
	}
}

// TestNamespacesTellNothing asks every path of a namespace, as one who may do everything there: no answer and no error
// tells of what is in another namespace beside it or above.
func TestNamespacesTellNothing(t *testing.T) {
	h, _ := leaseHouse(t)
	const mark = "marked"
	fill := func(space, mark string) (accessor string) {
		h.okIn(space, secrets.Update, "sys/mounts/"+mark+"kv", `{"type":"kv","description":"`+mark+`"}`)
		h.okIn(space, secrets.Update, "sys/mounts/"+mark+"db", `{"type":"issuer"}`)
		h.okIn(space, secrets.Update, "sys/auth/"+mark+"up", `{"type":"userpass"}`)
		h.okIn(space, secrets.Update, "auth/"+mark+"up/users/"+mark, `{"password":"p"}`)
		h.okIn(space, secrets.Update, "auth/token/roles/"+mark, `{}`)
		h.okIn(space, secrets.Update, "sys/policies/acl/"+mark, `{"policy":"path \"x\" { capabilities = [\"read\"] }"}`)
		h.okIn(space, secrets.Update, "sys/policies/password/"+mark, `{"policy":"length = 20\nrule \"charset\" { charset = `+
			`\"abcdefghij\" }"}`)
		h.okIn(space, secrets.Update, "sys/quotas/rate-limit/"+mark, `{"rate":100000}`)
		h.okIn(space, secrets.Update, "identity/entity", `{"name":"`+mark+`"}`)
		h.okIn(space, secrets.Update, "identity/group", `{"name":"`+mark+`"}`)
		h.okIn(space, secrets.Update, mark+"kv/"+mark, `{"x":"`+mark+`"}`)
		h.okIn(space, secrets.Read, mark+"db/creds/"+mark, "")
		login, err := h.in(space, "", secrets.Update, "auth/"+mark+"up/login/"+mark, `{"password":"p"}`)
		if err != nil {
			t.Fatal(err)
		}
		return login.Token.Accessor
	}
	for _, space := range []string{"a", "b", "a/c"} {
		h.ok(secrets.Update, "sys/namespaces/"+space, "")
	}
	h.ok(secrets.Update, "sys/namespaces/"+mark+"space", "")
	outside := []string{fill("", mark), fill("b/", mark)}
	fill("a/", "own")
	for _, leaf := range []string{"a/", "a/c/"} {
		all := h.allIn(leaf)
		names := []string{"", mark, mark + "/", mark + "kv", mark + "kv/", mark + "up/", "b/", mark + "db/creds/" + mark,
			outside[0], "../b/" + mark}
		var paths []string
		for _, e := range h.gate.Load().In(token.SpaceOf(all)).Mounts.All() {
			paths = append(paths, e.Path)
			for _, route := range []string{"keys", "creds", "roles", "users", "login", "accessors", "lookup", "lookup-accessor",
				"entity/name", "entity/id", "entity", "group/name", "group", "lookup/entity", "lookup/group", "entity-alias/id"} {
				paths = append(paths, e.Path+route)
			}
		}
		for _, row := range h.owners.system.Rows {
			if row.Path != "namespaces/" && row.Path != "seal" { // nothing is to end
				paths = append(paths, "sys/"+strings.TrimSuffix(row.Path, "/"))
			}
		}
		paths = append(paths, "sys/namespaces", mark+"kv", mark+"db", "auth/"+mark+"up", "b/"+mark+"kv")
		asked := 0
		for _, path := range paths {
			for _, name := range names {
				for _, op := range []secrets.Operation{secrets.Read, secrets.List, secrets.Scan, secrets.Update} {
					body := ""
					if op == secrets.Update {
						if !slices.ContainsFunc([]string{"lookup", "capabilities", "leases/", "renew", "login", "unwrap"},
							func(part string) bool { return strings.Contains(path, part) }) ||
							strings.Contains(path, "cubbyhole/") || strings.Contains(path, "kv/") || strings.Contains(path, "revoke") {
							continue // what it makes is its own, and comes back
						}
						body = `{"accessor":"` + outside[1] + `","token":"` + h.root + `","name":"` + mark + `","lease_id":"` + mark +
							`db/creds/` + mark + `","path":"secret/x"}`
					}
					reply, err := h.in(leaf, all, op, strings.TrimSuffix(path+"/"+name, "/"), body)
					asked++
					var told string
					if err == nil && reply.Response != nil {
						told = string(reply.Data)
						if reply.Raw != nil {
							told += string(reply.Raw.Body)
						}
					}
					// what was asked for comes back in what is said of it
					for _, own := range []string{path, name, strings.Trim(name, "/"), mark + "kv/", mark + "db/creds/" + mark} {
						if own != "" && err == nil && op == secrets.Update {
							told = strings.ReplaceAll(told, own, "")
						}
					}
					if strings.Contains(told, mark) || strings.Contains(told, outside[0]) || strings.Contains(told, outside[1]) {
						t.Errorf("%s: %v %s/%s tells %s", leaf, op, path, name, told)
					}
				}
			}
		}
		t.Logf("%s: %d requests", leaf, asked)
		// by the accessor and by the lease of another namespace's token
		for _, accessor := range outside {
			for _, path := range []string{"auth/token/lookup-accessor", "auth/token/renew-accessor",
				"sys/capabilities-accessor"} {
				if _, err := h.in(leaf, all, secrets.Update, path, `{"accessor":"`+accessor+
					`","paths":["x"]}`); !errkind.Is(err, errkind.Invalid) {
					t.Errorf("%s: %s of another's accessor: %v", leaf, path, err)
				}
			}
			if _, err := h.in(leaf, all, secrets.Update, "auth/token/revoke-accessor", `{"accessor":"`+accessor+
				`"}`); err != nil && !errkind.Is(err, errkind.Invalid) {
				t.Error(err)
			}
			if tok, err := h.gate.Load().Book.ByAccessor(t.Context(), accessor); err != nil || tok == nil {
				t.Errorf("%s: another namespace's token ended by its accessor: %v", leaf, err)
			}
		}
		if list, err := h.in(leaf, all, secrets.List, "auth/token/accessors/", ""); err != nil {
			t.Error(err)
		} else {
			var keys struct{ Keys []string }
			_ = json.Unmarshal(list.Data, &keys)
			for _, name := range keys.Keys {
				if token.Space(name) != token.SpaceOf(all) {
					t.Errorf("%s: lists the accessor %s", leaf, name)
				}
			}
		}
	}
}

// A lease is its namespace's: told of from there, and by nobody beside it.
func TestLeasesOfNamespaces(t *testing.T) {
	h, e := leaseHouse(t)
	for _, space := range []string{"a", "b"} {
		h.ok(secrets.Update, "sys/namespaces/"+space, "")
		h.okIn(space+"/", secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	}
	a, b := h.allIn("a/"), h.allIn("b/")
	got, err := h.in("a/", a, secrets.Read, "db/creds/x", "")
	if err != nil || !strings.HasPrefix(got.Lease.ID, "db/creds/x/") {
		t.Fatalf("%+v, %v", got, err)
	}
	id := `{"lease_id":"` + got.Lease.ID + `"}`
	for _, path := range []string{"sys/leases/lookup", "sys/leases/renew"} {
		if _, err := h.in("b/", b, secrets.Update, path, id); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s by another namespace: %v", path, err)
		}
		if _, err := h.in("a/", a, secrets.Update, path, id); err != nil {
			t.Error(err)
		}
		h.ok(secrets.Update, path, id) // above, by the id that it ends with
	}
	if _, err := h.in("b/", b, secrets.Update, "sys/leases/revoke", id); err != nil || e.count() != 1 {
		t.Errorf("revoked by another namespace: %v, %d live", err, e.count())
	}
	if _, err := h.in("b/", b, secrets.Update, "sys/leases/revoke-prefix/db", ""); err != nil || e.count() != 1 {
		t.Errorf("revoked by another namespace's prefix: %v, %d live", err, e.count())
	}
	if n := field(t, h.okIn("b/", secrets.Read, "sys/leases/count", ""), "lease_count"); n != 1.0 { // b's token
		t.Errorf("b counts %v", n)
	}
	if _, err := h.in("a/", a, secrets.Update, "sys/leases/revoke-prefix/db", ""); err != nil || e.count() != 0 {
		t.Errorf("%v, %d live", err, e.count())
	}
}

// A namespace that is deleted is closed at once; its leases end with their engine first, and then nothing is left.
func TestNamespaceEnds(t *testing.T) {
	h, e := leaseHouse(t)
	h.ok(secrets.Update, "sys/namespaces/a", "")
	before := len(h.keysBelow(""))
	h.okIn("a/", secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	h.okIn("a/", secrets.Update, "sys/mounts/kv", `{"type":"kv"}`)
	h.okIn("a/", secrets.Update, "kv/x", `{"x":"1"}`)
	h.okIn("a/", secrets.Update, "identity/entity", `{"name":"e"}`)
	h.okIn("a/", secrets.Update, "sys/quotas/rate-limit/r", `{"rate":100000}`)
	a := h.allIn("a/")
	batch := h.okIn("a/", secrets.Update, "auth/token/create", `{"policies":["all"],"type":"batch"}`).Token.ID
	for _, id := range []string{a, batch} {
		if _, err := h.in("a/", id, secrets.Read, "db/creds/x", ""); err != nil {
			t.Fatal(err)
		}
	}
	e.set(errors.New("the database is away"))
	if got := h.ok(secrets.Delete, "sys/namespaces/a", ""); field(t, got, "status") != "in-progress" {
		t.Errorf("deleted: %s", got.Data)
	}
	h.expireLeases()
	for range 2 {
		for _, id := range []string{a, batch} {
			if _, err := h.in("a/", id, secrets.Read, "kv/x", ""); !errkind.Is(err, errkind.Denied) {
				t.Errorf("a token of a namespace that is going: %v", err)
			}
		}
		if _, err := h.in("a/", h.root, secrets.Read, "kv/x", ""); !errkind.Is(err, errkind.NotFound) {
			t.Errorf("root in a namespace that is going: %v", err)
		}
		h.refused(errkind.NotFound, h.root, secrets.Read, "a/kv/x", "")
		h.refused(errkind.Invalid, h.root, secrets.Update, "sys/namespaces/a", "") // not yet
		if done, err := h.owners.namespaces.Sweep(t.Context()); err != nil || done != 0 || e.count() != 2 {
			t.Errorf("ended %d, %v, with %d leases", done, err, e.count())
		}
		h.ok(secrets.Update, "sys/seal", "") // a restart goes on
		h.unseal()
	}
	e.set(nil)
	h.wait(revokeAgain)
	h.expireLeases()
	if done, err := h.owners.namespaces.Sweep(t.Context()); err != nil || done != 1 || e.count() != 0 {
		t.Errorf("ended %d, %v, with %d leases", done, err, e.count())
	}
	h.expire()
	left := h.keysBelow("")
	for _, key := range left {
		if strings.Contains(key, tables.SpaceData) || strings.Contains(key, "core/namespace") ||
			strings.Contains(key, "sys/lease/id/a/") {
			t.Errorf("left over: %s", key)
		}
	}
	if len(left) > before {
		t.Errorf("%d records, %d before it", len(left), before)
	}
	for _, id := range []string{a, batch} { // one of the same name is another one
		h.ok(secrets.Update, "sys/namespaces/a", "")
		if _, err := h.in("a/", id, secrets.Read, "auth/token/lookup-self", ""); !errkind.Is(err, errkind.Denied) {
			t.Errorf("a token of one that was: %v", err)
		}
	}
	h.ok(secrets.Delete, "sys/namespaces/a", "")
	h.ok(secrets.Delete, "sys/namespaces/a", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "sys/namespaces/a", "")
}

// revokeAgain is longer than a lease waits for its next try, after few that failed.
const revokeAgain = 3600e9

func TestNamespaceLock(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/namespaces/a", "")
	h.ok(secrets.Update, "sys/namespaces/a/c", "")
	all := h.allIn("a/")
	key := field(t, h.ok(secrets.Update, "sys/namespaces/api-lock/lock/a", ""), "unlock_key").(string)
	for _, at := range []string{"a/", "a/c/"} {
		if _, err := h.in(at, h.root, secrets.Read, "sys/mounts", ""); !errkind.Is(err, errkind.Unavailable) {
			t.Errorf("in %s: %v", at, err)
		}
	}
	h.ok(secrets.Read, "sys/mounts", "")
	if _, err := h.in("a/", all, secrets.Update, "sys/namespaces/api-lock/unlock", `{"unlock_key":"x"}`); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("with a wrong key: %v", err)
	}
	if _, err := h.in("a/", all, secrets.Update, "sys/namespaces/api-lock/unlock", `{"unlock_key":"`+key+
		`"}`); err != nil {
		t.Error(err)
	}
	h.okIn("a/", secrets.Read, "sys/mounts", "")
}

// A wrapped answer is its namespace's.
func TestWrappingInNamespaces(t *testing.T) {
	h := newHouse(t)
	for _, space := range []string{"a", "b"} {
		h.ok(secrets.Update, "sys/namespaces/"+space, "")
	}
	r, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.Update, Path: "sys/wrapping/wrap",
		Body: []byte(`{"x":1}`), Wrap: 60e9,
		Namespace: secrets.Namespace{Space: "a/"}, Caller: secrets.Caller{Token: h.root}})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"token":"` + r.Wrap.Token + `"}`
	for _, path := range []string{"lookup", "unwrap", "rewrap"} {
		if _, err := h.in("b/", "", secrets.Update, "sys/wrapping/"+path, body); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s in another namespace: %v", path, err)
		}
	}
	got, err := h.in("a/", "", secrets.Update, "sys/wrapping/unwrap", body)
	if err != nil || !strings.Contains(string(got.Raw.Body), `"data":{"x":1}`) {
		t.Errorf("unwrapped %+v, %v", got, err)
	}
}

// A namespace costs no more than its records: no goroutine, and little memory.
func TestNamespacesCostLittle(t *testing.T) {
	const count = 10_000
	h := newHouse(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for at := 0; at < count; at += 1000 {
		var ops []storage.Op
		for i := range 1000 {
			one := tables.Space{ID: fmt.Sprintf("%06d", at+i), UUID: uuid.NewString(), Path: fmt.Sprintf("team-%d/", at+i)}
			op, err := storage.PutJSON(tables.SpacePrefix+one.UUID, one)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, op)
		}
		if err := h.records.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	h.ok(secrets.Update, "sys/seal", "")
	before, goroutines := heap(), runtime.NumGoroutine()
	h.unseal()
	if n := h.gate.Load().Spaces.Len(); n != count {
		t.Fatalf("%d namespaces", n)
	}
	after := heap()
	if each := int64(after-before) / count; each > 1024 {
		t.Errorf("a namespace takes %d bytes", each)
	} else {
		t.Logf("a namespace takes %d bytes", each)
	}
	if _, err := h.Tend(t.Context()); err != nil {
		t.Error(err)
	}
	if n := runtime.NumGoroutine(); n > goroutines+10 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	h.okIn("team-77/", secrets.Read, "sys/mounts", "")
	h.ok(secrets.Update, "sys/namespaces/one-more", "")
	h.ok(secrets.Delete, "sys/namespaces/team-5", "")
}
