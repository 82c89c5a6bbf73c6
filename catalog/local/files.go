package local

import (
	"errors"
	"slices"

	"corbel.dev/corbel/catalog/definition"
	"corbel.dev/corbel/kit/errkind"
)

// fileSet names what definition files own; checks includes those of services.
type fileSet struct{ services, checks map[string]bool }

// SetFileDefinitions replaces everything that came from definition files: all
// of it, or nothing and an error that names each problem. Checks that did not
// change keep running. Files win over the API for the same id.
func (l *Local) SetFileDefinitions(services []*definition.Service, checks []*definition.Check) error {
	l.sidecars.Lock()
	defer l.sidecars.Unlock()
	services, err := l.sidecars.splitAll(services)
	if err != nil {
		return err
	}
	next, own, err := l.checkFiles(services, checks)
	if err != nil {
		return err
	}
	l.files.Lock()
	defer l.files.Unlock()
	old := l.fromFS
	l.fromFS = next
	for id := range old.checks {
		if !next.checks[id] {
			_, _ = l.dropCheck(id) // gone already is fine
		}
	}
	for id := range old.services {
		if !next.services[id] {
			_, _ = l.dropService(id)
		}
	}
	for _, d := range services {
		if l.store != nil {
			if err := l.store.RemoveService(d.ServiceID()); err != nil {
				l.cfg.Log.Error("a registration that a file replaces stays on disk", "service", d.ServiceID(), "error", err)
			}
		}
		// Checks that the API added to the service stay; those of the former files went above.
		d = d.InFile()
		l.apply(d, d.NormaliseChecks(), false)
	}
	for _, c := range own {
		if _, err := l.putFileCheck(c.InFile()); err != nil {
			l.cfg.Log.Error("a check's service is not registered", "check", c.ID, "service", c.ServiceID)
		}
		if l.store != nil {
			l.store.RemoveCheck(c.ID)
		}
	}
	l.orphans = slices.DeleteFunc(l.orphans, func(c *definition.Check) bool {
		if next.checks[c.ID] {
			return true
		}
		_, err := l.putFileCheck(c)
		return err == nil
	})
	return nil
}

// putFileCheck puts a check while files is held.
func (l *Local) putFileCheck(d *definition.Check) (uint64, error) {
	c, ok, _ := l.runs.putCheck(nil, d)
	if !ok {
		return 0, errkind.Errorf(errkind.NotFound, "ServiceID %q does not exist", d.ServiceID)
	}
	return c.version, nil
}

// checkFiles validates a set of definitions and gives the checks their ids.
func (l *Local) checkFiles(services []*definition.Service, checks []*definition.Check) (fileSet,
	[]*definition.Check, error) {
	set := fileSet{services: map[string]bool{}, checks: map[string]bool{}}
	var failures []error
	fail := func(kind, id string, err error) {
		if err != nil {
			failures = append(failures, errkind.Errorf(errkind.Invalid, "%s %q: %w", kind, id, err))
		}
	}
	for _, d := range services {
		id := d.ServiceID()
		if set.services[id] {
			fail("service", id, errors.New("duplicate service definition"))
		}
		set.services[id] = true
		fail("service", id, d.Validate())
		for _, c := range d.NormaliseChecks() {
			fail("service", id, l.cfg.scriptAllowed(c, true))
			if set.checks[c.ID] {
				fail("check", c.ID, errors.New("duplicate check definition"))
			}
			set.checks[c.ID] = true
		}
	}
	own := make([]*definition.Check, 0, len(checks))
	for _, d := range checks {
		c := *d
		c.ID = d.CheckID()
		if set.checks[c.ID] {
			fail("check", c.ID, errors.New("duplicate check definition"))
		}
		set.checks[c.ID] = true
		fail("check", c.ID, c.Validate())
		fail("check", c.ID, l.cfg.scriptAllowed(&c, true))
		if c.ServiceID != "" && !set.services[c.ServiceID] && l.Service(c.ServiceID) == nil {
			fail("check", c.ID, errkind.Errorf(errkind.Invalid, "ServiceID %q does not exist", c.ServiceID))
		}
		own = append(own, &c)
	}
	if err := errors.Join(failures...); err != nil {
		return fileSet{}, nil, errkind.E(errkind.Invalid, "", err)
	}
	return set, own, nil
}

// restore registers what the API registered before the restart; TTL checks keep
// their status while their period lasts.
func (l *Local) restore() {
	services, checks := l.store.Load()
	l.state.ttl.former = l.store.LoadTTL()
	for _, d := range services {
		normal := d.NormaliseChecks()
		allowed := normal[:0]
		for _, c := range normal {
			if err := l.cfg.scriptAllowed(c, false); err != nil {
				l.cfg.Log.Error("a registered check is not restored", "check", c.ID, "error", err)
				continue
			}
			allowed = append(allowed, c)
		}
		l.apply(d, allowed, false)
	}
	for _, d := range checks {
		if err := l.cfg.scriptAllowed(d, false); err != nil {
			l.cfg.Log.Error("a registered check is not restored", "check", d.ID, "error", err)
			continue
		}
		if _, err := l.putFileCheck(d); err != nil {
			l.orphans = append(l.orphans, d) // a definition file may bring its service
		}
	}
}
