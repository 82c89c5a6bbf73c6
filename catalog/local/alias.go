package local

import (
	"cmp"
	"context"
	"maps"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
	"corbel.dev/corbel/kit/errkind"
)

// An alias shows the state and the output of what it looks at, to all who may read the alias's own service. So it
// sees no more than who registered it may read.

// aliasInterval is how often the rights of the aliases of this host are asked for again.
const aliasInterval = 5 * time.Second

// sight is a question for rights: whether a registration's token may read a service, by name, or with "" this node.
type sight struct {
	token   string
	file    bool
	service string
}

// sightLocked is what an alias of this host needs to see its target, which has the name; false when it needs nothing:
// it looks at its own service, or at one that was registered with the same token.
func (b *board) sightLocked(d *CheckDefinition, name string, target *ServiceDefinition) (sight, bool) {
	if b.cfg.MayRead == nil || target != nil && (d.ServiceID == d.AliasService ||
		d.Token == target.Token && d.file == target.file) {
		return sight{}, false
	}
	return sight{d.Token, d.file, name}, true
}

// needsLocked are the sights of an alias of this host whose target is there.
func (b *board) needsLocked(d *CheckDefinition) (sight, bool) {
	if d.AliasService == "" {
		return b.sightLocked(d, "", nil)
	}
	if e := b.services[d.AliasService]; e != nil {
		return b.sightLocked(d, e.cur.Service.Name, e.cur.Definition)
	}
	return sight{}, false
}

// seesLocked tells whether an alias may see its target, as far as it is known.
func (b *board) seesLocked(d *CheckDefinition) bool {
	s, needs := b.needsLocked(d)
	return !needs || b.sights[s]
}

// needs are the sights of checks that come, or of all that are there.
func (b *board) needs(coming []*CheckDefinition) map[sight]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[sight]bool{}
	add := func(d *CheckDefinition) {
		if s, needs := b.needsLocked(d); needs && b.localAlias(d) {
			all[s] = b.sights[s]
		}
	}
	for _, d := range coming {
		add(d)
	}
	if coming == nil {
		for _, of := range b.aliases {
			for _, e := range of {
				add(e.cur.Definition)
			}
		}
	}
	return all
}

// learn asks for the sights of checks that come.
func (l *Local) learn(ctx context.Context, coming []*CheckDefinition) {
	if l.cfg.MayRead == nil || len(coming) == 0 {
		return
	}
	found := l.ask(ctx, l.board.needs(coming))
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	if l.board.sights == nil {
		l.board.sights = map[sight]bool{}
	}
	maps.Copy(l.board.sights, found)
}

// judgeAliases asks for the rights of all aliases again: tokens end, and change what they allow.
func (l *Local) judgeAliases(ctx context.Context) {
	if l.cfg.MayRead == nil {
		return
	}
	found := l.ask(ctx, l.board.needs(nil))
	b := l.board
	b.mu.Lock()
	same := maps.Equal(b.sights, found)
	if b.sights = found; !same {
		for service := range b.aliases {
			b.refreshAliasesLocked(service, 0)
		}
	}
	b.mu.Unlock()
	if !same {
		l.poke(l.kick)
	}
}

// ask asks for rights. What cannot be told now stays as it was.
func (l *Local) ask(ctx context.Context, all map[sight]bool) map[sight]bool {
	if len(all) == 0 {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	for s := range all {
		err := l.cfg.MayRead(ctx, l.cfg.tokens().reads(s.token, s.file), s.service)
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

// remoteAlias looks at another node's checks in the catalog.
func (l *Local) remoteAlias(d *CheckDefinition) check.Probe {
	return func(ctx context.Context) check.Result {
		if l.cfg.ReadNode == nil {
			return check.Result{Status: catalog.Critical, Output: "This process cannot read other nodes"}
		}
		node, err := l.cfg.ReadNode(ctx, l.cfg.tokens().reads(d.Token, d.file), d.AliasNode)
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
