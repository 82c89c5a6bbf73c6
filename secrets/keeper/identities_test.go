package keeper

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

// users mounts userpass with users whose password is "pw".
func (h *house) users(names ...string) (accessor string) {
	h.t.Helper()
	h.ok(secrets.Update, "sys/auth/userpass", `{"type":"userpass"}`)
	for _, name := range names {
		h.ok(secrets.Update, "auth/userpass/users/"+name, text(h.t, map[string]string{"password_hash": quick(h.t),
			"token_policies": "app"}))
	}
	return h.gate.Load().Mounts.Get("auth/userpass/").Accessor
}

func (h *house) loginAs(name string) *task.Issued {
	h.t.Helper()
	r, err := h.as("", secrets.Update, "auth/userpass/login/"+name, `{"password":"pw"}`)
	if err != nil {
		h.t.Fatalf("login of %s: %v", name, err)
	}
	return r.Token
}

func (h *house) made(path, body string) (id string) {
	h.t.Helper()
	return fmt.Sprint(field(h.t, h.ok(secrets.Update, path, body), "id"))
}

func (h *house) policy(name, rules string) {
	h.t.Helper()
	h.ok(secrets.Update, "sys/policies/acl/"+name, text(h.t, map[string]string{"policy": rules}))
}

// commits counts the commits of what is done.
func (h *house) commits(do func()) (n int) {
	next := h.records.Committed
	defer func() { h.records.Committed = next }()
	h.records.Committed = func(ops []storage.Op) { n++; next(ops) }
	do()
	return n
}

func TestEntityOfALogin(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann", "bob")
	var ann *task.Issued
	if n := h.commits(func() { ann = h.loginAs("ann") }); n != 1 || ann.Entity == "" {
		t.Errorf("the first login is %d commits, of the entity %q", n, ann.Entity)
	}
	if again := h.loginAs("ANN"); again.Entity != ann.Entity {
		t.Errorf("the second login is of another entity")
	}
	if bob := h.loginAs("bob"); bob.Entity == ann.Entity {
		t.Errorf("two users are one entity")
	}
	r := h.ok(secrets.Read, "identity/entity/id/"+ann.Entity, "")
	if !strings.Contains(string(r.Data), `"mount_accessor":"`+mount+`"`) || !strings.Contains(string(r.Data),
		`"mount_path":"auth/userpass/"`) || !strings.Contains(string(r.Data), `"name":"ann"`) {
		t.Errorf("the entity reads %s", r.Data)
	}
	h.policy("team", `path "secret/team" { capabilities = ["read"] }`)
	h.policy("dept", `path "secret/dept" { capabilities = ["read"] }`)
	h.policy("own",
		`path "secret/{{identity.entity.name}}/{{identity.groups.names.web.metadata.floor}}" { capabilities = ["read"] }
path "secret/a/{{identity.entity.aliases.`+mount+`.name}}" { capabilities = ["read"] }
path "secret/b/{{identity.entity.aliases.other.name}}" { capabilities = ["read"] }`)
	can := func(want bool, paths ...string) {
		t.Helper()
		for _, path := range paths {
			_, err := h.as(ann.ID, secrets.Read, path, "")
			if got := !errkind.Is(err, errkind.Denied); got != want {
				t.Errorf("%s: %v, want allowed: %t", path, err, want)
			}
		}
	}
	can(true, "identity/entity/id/"+ann.Entity) // by the default policy's template
	can(false, "identity/entity/id/x", "secret/team", "secret/dept")
	h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"name":"Ann","policies":["own"],"metadata":{"team":"web"}}`)
	web := h.made("identity/group",
		`{"name":"web","policies":"team","metadata":{"floor":"3"},"member_entity_ids":["`+ann.Entity+`"]}`)
	can(true, "secret/team", "secret/a/ann", "secret/Ann/3", "identity/entity/name/Ann")
	can(false, "secret/dept", "secret/b/ann", "secret/Ann/4")
	dept := h.made("identity/group", `{"name":"dept","policies":["dept"],"member_group_ids":["`+web+`"]}`)
	can(true, "secret/dept")
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/group/id/"+web, `{"member_group_ids":["`+dept+`"]}`)
	if r := h.ok(secrets.Update, "auth/token/lookup", `{"token":"`+ann.ID+`"}`); fmt.Sprint(field(t, r,
		"identity_policies")) != "[dept own team]" || field(t, r, "entity_id") != ann.Entity {
		t.Errorf("the token looks like %s", r.Data)
	}
	h.ok(secrets.Update, "identity/group/name/web", `{"metadata":{"floor":"../x"}}`)
	can(false, "secret/Ann/3", "secret/Ann/../x") // a value that is a path opens nothing
	h.ok(secrets.Delete, "identity/group/id/"+dept, "")
	can(false, "secret/dept")
	h.ok(secrets.Update, "identity/entity/name/ann", `{"disabled":true}`)
	can(false, "secret/team", "auth/token/lookup-self")
	h.refused(errkind.Denied, "", secrets.Update, "auth/userpass/login/ann", `{"password":"pw"}`)
	h.ok(secrets.Update, "identity/entity/name/ann", `{"disabled":false}`)
	can(true, "secret/team")
	h.Seal()
	h.unseal()
	can(true, "secret/team", "secret/a/ann")
	h.ok(secrets.Delete, "identity/entity/id/"+ann.Entity, "")
	can(false, "auth/token/lookup-self")
	if next := h.loginAs("ann"); next.Entity == ann.Entity || len(next.Identity) != 0 {
		t.Errorf("after its entity went, the login gives %+v", next)
	}
}

// However many log in for the first time at once, they are one entity.
func TestFirstLoginsAtOnce(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	entities := make([]string, 12)
	var wg sync.WaitGroup
	for i := range entities {
		wg.Go(func() {
			r, err := h.Handle(context.Background(), &secrets.Request{Op: secrets.Update, Path: "auth/userpass/login/ann",
				Body: []byte(`{"password":"pw"}`)})
			if err != nil {
				t.Errorf("login: %v", err)
				return
			}
			entities[i] = r.Token.Entity
		})
	}
	wg.Wait()
	if slices.Sort(entities); entities[0] == "" || entities[0] != entities[len(entities)-1] {
		t.Errorf("entities: %q", entities)
	}
	if r := h.ok(secrets.List, "identity/entity/id/", ""); len(field(t, r, "keys").([]any)) != 1 {
		t.Errorf("the entities are %s", r.Data)
	}
}

func TestMerge(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann")
	h.policy("p", `path "secret/p" { capabilities = ["read"] }`)
	h.policy("q", `path "secret/q" { capabilities = ["read"] }`)
	tok := h.loginAs("ann")
	one := h.made("identity/entity", `{"name":"one","policies":["p"],"metadata":{"k":"v"}}`)
	group := h.made("identity/group", `{"name":"g","policies":["q"],"member_entity_ids":["`+tok.Entity+`"]}`)
	other := h.made("identity/entity-alias", `{"name":"x","mount_accessor":"`+mount+`","canonical_id":"`+one+`"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/entity/merge",
		`{"from_entity_ids":["`+tok.Entity+`"],"to_entity_id":"`+one+`"}`)
	h.ok(secrets.Delete, "identity/entity-alias/id/"+other, "")
	for _, path := range []string{"secret/p", "secret/q"} {
		_, err := h.as(tok.ID, secrets.Read, path, "")
		if want := path == "secret/q"; errkind.Is(err, errkind.Denied) == want {
			t.Errorf("before: %s: %v", path, err)
		}
	}
	h.ok(secrets.Update, "identity/entity/merge", `{"from_entity_ids":["`+tok.Entity+`"],"to_entity_id":"`+one+`"}`)
	for _, path := range []string{"secret/p", "secret/q"} {
		if _, err := h.as(tok.ID, secrets.Read, path, ""); errkind.Is(err, errkind.Denied) {
			t.Errorf("after: %s: %v", path, err)
		}
	}
	h.ok(secrets.Update, "identity/entity/id/"+one, `{"policies":[]}`)
	h.refused(errkind.Denied, tok.ID, secrets.Read, "secret/p", "")
	if again := h.loginAs("ann"); again.Entity != one || fmt.Sprint(again.Identity) != "[q]" {
		t.Errorf("the next login is %+v", again)
	}
	if r := h.ok(secrets.Read, "identity/group/id/"+group, ""); fmt.Sprint(field(t, r,
		"member_entity_ids")) != "["+one+"]" {
		t.Errorf("the group is %s", r.Data)
	}
	h.ok(secrets.Update, "identity/entity/batch-delete", `{"entity_ids":["`+one+`"]}`)
	h.refused(errkind.Denied, tok.ID, secrets.Read, "secret/q", "")
	if left := h.keysBelow(h.gate.Load().IdentitiesPrefix); len(left) != 2 { // group and name
		t.Errorf("left: %q", left)
	}
}

func TestIdentityRefuses(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann")
	h.made("identity/entity", `{"name":"e"}`)
	ext := h.made("identity/group", `{"name":"ext","type":"external"}`)
	for body, path := range map[string]string{
		`{"policies":["root"]}`:                           "identity/entity",
		`{"name":"` + strings.Repeat("x", 513) + `"}`:     "identity/entity",
		`{"id":"none"}`:                                   "identity/entity",
		`{"metadata":{"":"x"}}`:                           "identity/entity",
		`{"metadata":7}`:                                  "identity/entity",
		`{"type":"odd"}`:                                  "identity/group",
		`{"member_entity_ids":["none"]}`:                  "identity/group",
		`{"member_group_ids":["none"]}`:                   "identity/group",
		`{"name":"ext","member_entity_ids":["a"]}`:        "identity/group",
		`{"name":"ext","type":"internal"}`:                "identity/group",
		`{"name":"a","mount_accessor":"none"}`:            "identity/entity-alias",
		`{"mount_accessor":"` + mount + `"}`:              "identity/entity-alias",
		`{"canonical_id":"none","name":"x"}`:              "identity/group-alias",
		`{}`:                                              "identity/lookup/entity",
		`{"id":"a","name":"b"}`:                           "identity/lookup/entity",
		`{"alias_name":"b"}`:                              "identity/lookup/group",
		`{"to_entity_id":"x"}`:                            "identity/entity/merge",
		`{"entity_ids":7}`:                                "identity/entity/batch-delete",
		`{"id":"` + strings.Repeat("../", 3) + `x"}`:      "identity/group",
		`{"name":"z","mount_accessor":"a/../../b"}`:       "identity/entity-alias",
		`{"name":"y","canonical_id":"` + ext + `","b":1}`: "identity/entity-alias",
	} {
		h.refused(errkind.Invalid, h.root, secrets.Update, path, body)
	}
	h.refused(errkind.NotFound, h.root, secrets.Read, "identity/entity/id/none", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "identity/group/name/none", "")
	if r := h.ok(secrets.Update, "identity/lookup/entity", `{"name":"none"}`); r.Data != nil {
		t.Errorf("a look-up of nobody: %s", r.Data)
	}
	if r := h.ok(secrets.Update, "identity/lookup/entity", `{"name":"E"}`); field(t, r, "name") != "e" {
		t.Errorf("a look-up by name: %s", r.Data)
	}
}

// TestIdentityAgainstTheModel changes groups and entities at random; what a token may do is what the
// obvious model says, whatever was cached before.
func TestIdentityAgainstTheModel(t *testing.T) {
	h := newHouse(t)
	names := []string{"e0", "e1", "e2"}
	h.users(names...)
	rng := rand.New(rand.NewPCG(1, 2))
	tokens, entities, groups := map[string]string{}, map[string]string{}, map[string]string{}
	for _, n := range names {
		tok := h.loginAs(n)
		tokens[n], entities[n] = tok.ID, tok.Entity
		h.ok(secrets.Update, "identity/entity/id/"+tok.Entity, `{"name":"`+n+`"}`)
	}
	type group struct{ members, children, policies []string }
	model := map[string]*group{}
	own := map[string][]string{}
	for i := range 5 {
		n := fmt.Sprint("g", i)
		h.policy("p"+n, `path "secret/`+n+`" { capabilities = ["read"] }`)
		groups[n], model[n] = h.made("identity/group", `{"name":"`+n+`"}`), &group{}
	}
	some := func(of []string) (out []string) {
		for _, v := range of {
			if rng.IntN(3) == 0 {
				out = append(out, v)
			}
		}
		return out
	}
	ids := func(list []string, by map[string]string) (out []string) {
		for _, v := range list {
			out = append(out, by[v])
		}
		return out
	}
	groupNames := slices.Sorted(maps.Keys(model))
	for range 150 {
		at := rng.IntN(len(groupNames))
		n := groupNames[at]
		g := model[n]
		switch rng.IntN(4) {
		case 0:
			g.members = some(names)
			h.ok(secrets.Update, "identity/group/id/"+groups[n], text(t, map[string]any{"member_entity_ids": append([]string{},
				ids(g.members, entities)...)}))
		case 1:
			g.children = some(groupNames[:at]) // of lesser numbers alone: no circles
			h.ok(secrets.Update, "identity/group/name/"+n, text(t, map[string]any{"member_group_ids": append([]string{},
				ids(g.children, groups)...)}))
		case 2:
			g.policies = some([]string{"pg0", "pg1", "pg2", "pg3", "pg4"})
			h.ok(secrets.Update, "identity/group", text(t, map[string]any{"name": n, "policies": append([]string{},
				g.policies...)}))
		default:
			e := names[rng.IntN(len(names))]
			own[e] = some([]string{"pg0", "pg1"})
			h.ok(secrets.Update, "identity/entity/name/"+e, text(t, map[string]any{"policies": append([]string{}, own[e]...)}))
		}
		for _, e := range names {
			var want []string
			var add func(n string)
			add = func(n string) {
				want = append(want, model[n].policies...)
				for _, above := range groupNames {
					if slices.Contains(model[above].children, n) {
						add(above)
					}
				}
			}
			want = append(want, own[e]...)
			for _, n := range groupNames {
				if slices.Contains(model[n].members, e) {
					add(n)
				}
			}
			for _, n := range groupNames {
				_, err := h.as(tokens[e], secrets.Read, "secret/"+n, "")
				if got := !errkind.Is(err, errkind.Denied); got != slices.Contains(want, "p"+n) {
					t.Fatalf("%s reads secret/%s: %v, the model gives %q", e, n, err, want)
				}
			}
		}
	}
}

func TestEntityAlias(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "auth/token/roles/r", `{"allowed_policies":"app","allowed_entity_aliases":["web-*","db"]}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create", `{"entity_alias":"db"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/token/create/r", `{"entity_alias":"other"}`)
	a := h.ok(secrets.Update, "auth/token/create/r", `{"entity_alias":"web-1"}`).Token
	b := h.ok(secrets.Update, "auth/token/create/r", `{"entity_alias":"web-1"}`).Token
	if a.Entity == "" || a.Entity != b.Entity {
		t.Errorf("entities %q and %q", a.Entity, b.Entity)
	}
	h.policy("maker",
		`path "auth/token/create" { capabilities = ["update"] } path "auth/token/create-orphan" { capabilities = ["update"] }`)
	h.ok(secrets.Update, "identity/entity/id/"+a.Entity, `{"policies":["maker"]}`)
	child, err := h.as(a.ID, secrets.Update, "auth/token/create", `{}`)
	if err != nil || child.Token.Entity != a.Entity {
		t.Errorf("a child: %+v, %v", child, err)
	}
	orphan, err := h.as(a.ID, secrets.Update, "auth/token/create-orphan", `{}`)
	if err != nil || orphan.Token.Entity != "" {
		t.Errorf("an orphan: %+v, %v", orphan, err)
	}
}
