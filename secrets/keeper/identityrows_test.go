package keeper

import (
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Every path of entities, groups and their aliases, as clients walk them: make, read by each name, list, change, look
// up, delete.
func TestIdentityPaths(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann")
	entity := h.made("identity/entity", `{"name":"Bob","metadata":["team=web"],"policies":"p,q"}`)
	alias := h.made("identity/entity-alias",
		`{"name":"bob","mount_accessor":"`+mount+`","canonical_id":"`+entity+`","custom_metadata":{"k":"v"}}`)
	group := h.made("identity/group",
		`{"name":"web","policies":["p"],"member_entity_ids":["`+entity+`"],"metadata":{"floor":"3"}}`)
	above := h.made("identity/group", `{"name":"all","member_group_ids":["`+group+`"]}`)
	external := h.made("identity/group", `{"name":"ext","type":"external"}`)
	groupAlias := h.made("identity/group-alias",
		`{"name":"admins","mount_accessor":"`+mount+`","canonical_id":"`+external+`"}`)
	byEntityAlias, byGroupAlias := `{"alias_name":"bob","alias_mount_accessor":"`+mount+`"}`,
		`{"alias_name":"admins","alias_mount_accessor":"`+mount+`"}`

	has := func(op secrets.Operation, path, body string, want ...string) {
		t.Helper()
		got := string(h.ok(op, path, body).Data)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%v %s has no %s: %s", op, path, w, got)
			}
		}
	}
	bob := []string{`"id":"` + entity + `"`, `"name":"Bob"`, `"metadata":{"team":"web"}`, `"policies":["p","q"]`,
		`"disabled":false`, `"mount_type":"userpass"`, `"mount_path":"auth/userpass/"`,
		`"canonical_id":"` + entity + `"`, `"direct_group_ids":["` + group + `"]`, `"inherited_group_ids":["` + above + `"]`,
		`"namespace_id":"root"`, `"creation_time":"20`, `"last_update_time":"20`, `"merged_entity_ids":null`}
	has(secrets.Read, "identity/entity/id/"+entity, "", bob...)
	has(secrets.Read, "identity/entity/name/bob", "", bob...)
	for _, by := range []string{byEntityAlias, `{"id":"` + entity + `"}`, `{"name":"bob"}`,
		`{"alias_id":"` + alias + `"}`} {
		has(secrets.Update, "identity/lookup/entity", by, bob...)
	}
	has(secrets.List, "identity/entity/id/", "", `"keys":["`+entity+`"]`, `"key_info":{"`+entity+`":{`, `"name":"Bob"`)
	has(secrets.List, "identity/entity/name/", "", `"keys":["Bob"]`)
	has(secrets.Read, "identity/entity-alias/id/"+alias, "", `"name":"bob"`, `"mount_accessor":"`+mount+`"`,
		`"canonical_id":"`+entity+`"`, `"custom_metadata":{"k":"v"}`, `"local":false`)
	has(secrets.List, "identity/entity-alias/id/", "", `"keys":["`+alias+`"]`, `"canonical_id":"`+entity+`"`)

	web := []string{`"id":"` + group + `"`, `"name":"web"`, `"type":"internal"`, `"member_entity_ids":["` + entity + `"]`,
		`"parent_group_ids":["` + above + `"]`, `"policies":["p"]`, `"metadata":{"floor":"3"}`, `"alias":{}`}
	has(secrets.Read, "identity/group/id/"+group, "", web...)
	has(secrets.Read, "identity/group/name/web", "", web...)
	has(secrets.Update, "identity/lookup/group", `{"name":"web"}`, web...)
	for _, by := range []string{byGroupAlias, `{"alias_id":"` + groupAlias + `"}`} {
		has(secrets.Update, "identity/lookup/group", by, `"id":"`+external+`"`, `"type":"external"`, `"name":"admins"`)
	}
	has(secrets.List, "identity/group/name/", "", `"keys":["all","ext","web"]`)
	has(secrets.List, "identity/group/id/", "", `"key_info":{`, group, above, external)
	has(secrets.Read, "identity/group-alias/id/"+groupAlias, "", `"name":"admins"`, `"canonical_id":"`+external+`"`)
	has(secrets.List, "identity/group-alias/id/", "", `"keys":["`+groupAlias+`"]`)

	h.ok(secrets.Update, "identity/entity-alias/id/"+alias,
		`{"name":"robert","mount_accessor":"`+mount+`","canonical_id":"`+entity+`"}`)
	h.ok(secrets.Update, "identity/group-alias/id/"+groupAlias,
		`{"name":"chiefs","mount_accessor":"`+mount+`","canonical_id":"`+external+`"}`)
	for path, by := range map[string]string{"entity": byEntityAlias, "group": byGroupAlias} {
		if r := h.ok(secrets.Update, "identity/lookup/"+path, by); r.Data != nil {
			t.Errorf("%s by the former name of its alias: %s", path, r.Data)
		}
	}
	has(secrets.Update, "identity/lookup/entity", strings.Replace(byEntityAlias, "bob", "robert", 1), entity)
	has(secrets.Update, "identity/lookup/group", strings.Replace(byGroupAlias, "admins", "chiefs", 1), external)

	for _, path := range []string{"entity-alias/id/" + alias, "group-alias/id/" + groupAlias, "group/id/" + group,
		"group/name/ext", "entity/name/bob"} {
		h.ok(secrets.Delete, "identity/"+path, "")
		h.refused(errkind.NotFound, h.root, secrets.Read, "identity/"+path, "")
		h.ok(secrets.Delete, "identity/"+path, "") // again is no error
	}
	for _, path := range []string{"entity/id/", "entity/name/", "entity-alias/id/", "group-alias/id/"} {
		h.refused(errkind.NotFound, h.root, secrets.List, "identity/"+path, "")
	}
	has(secrets.Read, "identity/group/id/"+above, "", `"member_group_ids":[]`)
}
