package local

import (
	"cmp"
	"context"
	"maps"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

// An alias shows the state and the output of what it looks at, to all who may read the alias's own service. So it
// sees no more than who registered it may read.

// aliasInterval is how often the rights of the aliases of this host are asked for again.
const aliasInterval = 5 * time.Second

// sight is a question for rights: whether a registration's token may read a service, by name, or with "" this node.
type sight struct {
	token    string
	fromFile bool
	service  string
}

// sightLocked is what an alias of this host needs to see its target, which has the name; false when it needs nothing:
// it looks at its own service, or at one that was registered with the same token.
func (st *state) sightLocked(d *definition.Check, name string, target *definition.Service) (sight, bool) {
	if st.cfg.MayRead == nil || target != nil && (d.ServiceID == d.AliasService ||
		d.Token == target.Token && d.FromFile == target.FromFile) {
		return sight{}, false
	}
	return sight{d.Token, d.FromFile, name}, true
}

// needsLocked are the sights of an alias of this host whose target is there.
func (st *state) needsLocked(d *definition.Check) (sight, bool) {
	if d.AliasService == "" {
		return st.sightLocked(d, "", nil)
	}
	if e := st.services[d.AliasService]; e != nil {
		return st.sightLocked(d, e.cur.Service.Name, e.cur.Definition)
	}
	return sight{}, false
}

// seesLocked tells whether an alias may see its target, as far as it is known.
func (st *state) seesLocked(d *definition.Check) bool {
	s, needs := st.needsLocked(d)
	return !needs || st.aliases.sights[s]
}

// needs are the sights of checks that come, or of all that are there.
func (st *state) needs(coming []*definition.Check) map[sight]bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	all := map[sight]bool{}
	add := func(d *definition.Check) {
		if s, needs := st.needsLocked(d); needs && st.localAlias(d) {
			all[s] = st.aliases.sights[s]
		}
	}
	for _, d := range coming {
		add(d)
	}
	if coming == nil {
		for _, of := range st.aliases.byTarget {
			for _, e := range of {
				add(e.cur.Definition)
			}
		}
	}
	return all
}

// aliasRights asks what the tokens of aliases may read, and tells the state. It keeps nothing itself.
type aliasRights struct {
	cfg   *Config
	state *state
}

// learn asks for the sights of checks that come.
func (a *aliasRights) learn(ctx context.Context, coming []*definition.Check) {
	if a.cfg.MayRead == nil || len(coming) == 0 {
		return
	}
	found := a.ask(ctx, a.state.needs(coming))
	a.state.mu.Lock()
	defer a.state.mu.Unlock()
	if a.state.aliases.sights == nil {
		a.state.aliases.sights = map[sight]bool{}
	}
	maps.Copy(a.state.aliases.sights, found)
}

// judge asks for the rights of all aliases again: tokens end, and change what they allow. True when something changed.
func (a *aliasRights) judge(ctx context.Context) bool {
	if a.cfg.MayRead == nil {
		return false
	}
	found := a.ask(ctx, a.state.needs(nil))
	st := a.state
	st.mu.Lock()
	defer st.mu.Unlock()
	same := maps.Equal(st.aliases.sights, found)
	if st.aliases.sights = found; !same {
		for service := range st.aliases.byTarget {
			st.refreshAliasesLocked(service, 0)
		}
	}
	return !same
}

// ask asks for rights. What cannot be told now stays as it was.
func (a *aliasRights) ask(ctx context.Context, all map[sight]bool) map[sight]bool {
	if len(all) == 0 {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	for s := range all {
		err := a.cfg.MayRead(ctx, a.cfg.tokens().reads(s.token, s.fromFile), s.service)
		if err == nil || errkind.Is(err, errkind.Denied) {
			all[s] = err == nil
		}
	}
	return all
}

// reads is the token with whose rights a check looks at others: its own. What a file brought without one is the
// operator's.
func (t Tokens) reads(registered string, fromFile bool) string {
	token := t.of(registered, fromFile)
	if fromFile {
		token = cmp.Or(token, t.own())
	}
	return token
}

// remote looks at another node's checks in the catalog.
func (a *aliasRights) remote(d *definition.Check) check.Probe {
	return func(ctx context.Context) check.Result {
		if a.cfg.ReadNode == nil {
			return check.Result{Status: catalog.Critical, Output: "This process cannot read other nodes"}
		}
		node, err := a.cfg.ReadNode(ctx, a.cfg.tokens().reads(d.Token, d.FromFile), d.AliasNode)
		switch {
		case errkind.Is(err, errkind.Denied):
			return check.Result{Status: catalog.Critical, Output: "The check's token may not read node " + d.AliasNode}
		case err != nil:
			return check.Result{Status: catalog.Critical, Output: "Unable to read the aliased node's checks: " + err.Error()}
		case node == nil:
			return check.Result{Status: catalog.Critical, Output: "Node " + d.AliasNode +
				" could not be found, or the check's token may not read it"}
		case d.AliasService != "" && !node.Services[d.AliasService]:
			return check.Result{Status: catalog.Critical, Output: "Service " + d.AliasService + " could not be found on node " +
				d.AliasNode + ", or the check's token may not read it"}
		}
		var checks []*catalog.Check
		for _, c := range node.Checks {
			if c.ServiceID == "" || c.ServiceID == d.AliasService {
				checks = append(checks, c)
			}
		}
		return aliasResult(checks)
	}
}

// Seen is what a token may read of a node.
type Seen struct {
	Services map[string]bool // ids
	Checks   []*catalog.Check
}
