package identity

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/mount"
)

// Engine answers the API of identity. Its writes exclude each other, and logins that change something: its caller
// sees to that.
type Engine struct {
	Hash   func(text string) string
	Mounts func(accessor string) *mount.Entry // the mount with the accessor, or nil
	// Address is where clients reach this server; the issuer of tokens where nobody names another.
	Address string

	Space string // the id of its namespace; "": the root one

	quiet atomic.Int64 // no key is due before (ns)
}

var _ engine.Tender = (*Engine)(nil)

// space is what the API calls the namespace.
func (e *Engine) space() string { return cmp.Or(e.Space, "root") }

// Special implements engine.Engine.
func (*Engine) Special() engine.Special {
	return engine.Special{Open: []string{discoveryPath, keysPath, "oidc/provider/+/" + wellKnown + "openid-configuration",
		"oidc/provider/+/" + wellKnown + "keys", "oidc/provider/+/token", "oidc/provider/+/userinfo"}}
}

// Serial implements engine.Engine: changes of what signs tokens follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	if rest, is := strings.CutPrefix(r.Rest, "oidc/provider/"); is && strings.Contains(rest, "/") {
		return "" // what clients ask a provider writes nothing
	}
	if OfTokens(r) && r.Op.Writes() {
		return "oidc"
	}
	return ""
}

// OfTokens reports whether a request is about identity tokens, and so about no entity's records.
func OfTokens(r *secrets.Request) bool { return strings.HasPrefix(r.Rest, "oidc/") }

// Exists implements engine.Engine.
func (*Engine) Exists(context.Context, engine.View, *secrets.Request) (exists, ok bool, err error) {
	return false, false, nil
}

// call is a request with what it found.
type call struct {
	context.Context
	*secrets.Request
	Book
	e   *Engine
	f   *secrets.Fields
	now time.Time
	ops []secrets.Op
}

func (c *call) writes() bool { return c.Op == secrets.Create || c.Op == secrets.Update }

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, Request: r, Book: Book{view, e.Hash}, e: e, f: f, now: r.Now.UTC()}
	kind, rest, _ := strings.Cut(strings.TrimSuffix(r.Rest, "/"), "/")
	by, name, _ := strings.Cut(rest, "/")
	if name != "" && by != "id" && by != "name" && kind != "oidc" {
		return nil, auth.ErrPath
	}
	var resp *secrets.Response
	switch kind {
	case "oidc":
		resp, err = tokens{c}.route(rest)
	case "entity":
		resp, err = entities{c}.route(by, name)
	case "entity-alias", "alias", "persona":
		resp, err = aliases{c}.route(by, name)
	case "group":
		resp, err = groups{c}.route(by, name)
	case "group-alias":
		resp, err = groups{c}.routeAlias(by, name)
	case "lookup":
		resp, err = c.lookup(by)
	default:
		return nil, auth.ErrPath
	}
	if err != nil {
		return nil, err
	}
	if resp == nil {
		resp = &secrets.Response{}
	}
	resp.Ops = c.ops
	return resp, nil
}

func stamp(t time.Time) string { return t.Format(time.RFC3339Nano) }

func object(m map[string]string) any {
	if m == nil {
		return nil
	}
	return m
}

// showAlias is an alias as it is read; of is the ID of what it is an alias of.
func (c *call) showAlias(a *Alias, of string) map[string]any {
	path, kind := "", ""
	if m := c.e.Mounts(a.Mount); m != nil {
		path, kind = m.Path, m.Type
	}
	return map[string]any{"id": a.ID, "canonical_id": of, "mount_accessor": a.Mount, "mount_path": path,
		"mount_type": kind, "name": a.Name,
		"metadata": object(a.Meta), "custom_metadata": object(a.Custom), "creation_time": stamp(a.Created),
		"last_update_time":          stamp(a.Updated),
		"merged_from_canonical_ids": a.MergedFrom, "local": false, "namespace_id": c.e.space()}
}

func (c entities) show(e *Entity) (*secrets.Response, error) {
	p, err := c.Resolve(c, e.ID)
	if err != nil || p == nil {
		return nil, err
	}
	direct, inherited := []string{}, []string{}
	for _, g := range p.Direct {
		direct = append(direct, g.ID)
	}
	for _, g := range p.Inherited {
		inherited = append(inherited, g.ID)
	}
	aliases := []any{}
	for _, a := range e.Aliases {
		aliases = append(aliases, c.showAlias(a, e.ID))
	}
	return auth.Data(map[string]any{"id": e.ID, "name": e.Name, "metadata": object(e.Meta),
		"policies": auth.List(e.Policies), "disabled": e.Disabled, "aliases": aliases,
		"merged_entity_ids": e.Merged, "creation_time": stamp(e.Created), "last_update_time": stamp(e.Updated),
		"namespace_id":     c.e.space(),
		"direct_group_ids": direct, "inherited_group_ids": inherited, "group_ids": slices.Concat(direct, inherited)})
}

func (c groups) show(g *Group) (*secrets.Response, error) {
	members, children, parents, err := c.around(g.ID)
	if err != nil {
		return nil, err
	}
	alias := map[string]any{}
	if g.Alias != nil {
		alias = c.showAlias(g.Alias, g.ID)
	}
	return auth.Data(map[string]any{"id": g.ID, "name": g.Name, "type": g.Type, "metadata": object(g.Meta),
		"policies": auth.List(g.Policies), "alias": alias,
		"member_entity_ids": auth.List(members), "member_group_ids": auth.List(children),
		"parent_group_ids": auth.List(parents),
		"creation_time":    stamp(g.Created), "last_update_time": stamp(g.Updated), "modify_index": 1,
		"namespace_id": c.e.space()})
}

// around gives what a group is connected with.
func (c groups) around(id string) (members, children, parents []string, err error) {
	for kind, into := range map[string]*[]string{membersKey: &members, childrenKey: &children, parentsKey: &parents} {
		if *into, err = c.ids(c, kind+id+"/"); err != nil {
			return nil, nil, nil, err
		}
	}
	return members, children, parents, nil
}

// lookup finds an entity or a group by whatever names it. None is an empty answer.
func (c *call) lookup(kind string) (*secrets.Response, error) {
	if !c.writes() {
		return nil, auth.ErrUnsupported
	}
	id, name, alias, aliasName, aliasMount := c.f.String("id"), c.f.String("name"), c.f.String("alias_id"),
		c.f.String("alias_name"), c.f.String("alias_mount_accessor")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	given := 0
	for _, v := range []string{id, name, alias, aliasName + aliasMount} {
		if v != "" {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, errkind.New(errkind.Invalid,
			"query not supplied: give one of id, name, alias_id, or alias_name with alias_mount_accessor")
	case given > 1:
		return nil, errkind.New(errkind.Invalid,
			"only one of id, name, alias_id, or alias_name with alias_mount_accessor may be given")
	case (aliasName == "") != (aliasMount == ""):
		return nil, errkind.New(errkind.Invalid, "alias_name and alias_mount_accessor: must be given together")
	}
	if kind == "group" {
		return found(groups{c}.find(id, name, alias, aliasName, aliasMount))(groups{c}.show)
	}
	if kind == "entity" {
		return found(entities{c}.find(id, name, alias, aliasName, aliasMount))(entities{c}.show)
	}
	return nil, auth.ErrPath
}

func found[T any](v *T, err error) func(show func(*T) (*secrets.Response, error)) (*secrets.Response, error) {
	return func(show func(*T) (*secrets.Response, error)) (*secrets.Response, error) {
		if err != nil || v == nil {
			return nil, err
		}
		return show(v)
	}
}

func (c entities) find(id, name, alias, aliasName, aliasMount string) (*Entity, error) {
	switch {
	case id != "":
		return c.Entity(c, id)
	case name != "":
		return c.at(c, c.name(entityNameKey, name))
	case alias != "" && !plainID(alias):
		return nil, nil
	case alias != "":
		return c.at(c, aliasKey+alias)
	}
	return c.at(c, c.factor(factorKey, aliasMount, aliasName))
}

func (c groups) find(id, name, alias, aliasName, aliasMount string) (*Group, error) {
	switch {
	case id != "":
		return c.Group(c, id)
	case name != "":
		return c.groupAt(c, c.name(groupNameKey, name))
	case alias != "" && !plainID(alias):
		return nil, nil
	case alias != "":
		return c.groupAt(c, groupAliasKey+alias)
	}
	return c.groupAt(c, c.factor(groupFactorKey, aliasMount, aliasName))
}
