package local

import (
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
)

// What a registration results in is judged by the services and checks that are there afterwards, and by those that
// they displace: ids and names are derived, and two services of one host may come from two people. Rights are asked
// for under the state's lock, so that nothing comes between the answer and the change.

// may asks for write on a service by its name, or with "" on the node itself.
type may func(service string) error

// mayPutServiceLocked asks for what a service with its checks brings and displaces.
func (st *state) mayPutServiceLocked(ask may, d *definition.Service, checks []*definition.Check) error {
	if ask == nil {
		return nil
	}
	names := []string{d.Name}
	if to := d.ProxyDestination(); to != "" && to != d.Name {
		names = append(names, to) // a proxy is found as an instance of what it stands for
	}
	if e := st.services[d.ServiceID()]; e != nil && e.cur.Service.Name != d.Name {
		names = append(names, e.cur.Service.Name)
	}
	for _, name := range names {
		if err := ask(name); err != nil {
			return err
		}
	}
	for _, c := range checks {
		if err := st.mayTakeCheckIDLocked(ask, c.ID, d.ServiceID()); err != nil {
			return err
		}
	}
	return nil
}

// mayPutCheckLocked asks for what a check that is registered by itself belongs to and displaces.
func (st *state) mayPutCheckLocked(ask may, d *definition.Check) error {
	if ask == nil {
		return nil
	}
	name := ""
	if e := st.services[d.ServiceID]; e != nil {
		name = e.cur.Service.Name
	}
	if err := ask(name); err != nil {
		return err
	}
	return st.mayTakeCheckIDLocked(ask, d.ID, d.ServiceID)
}

// mayTakeCheckIDLocked asks for what a check's id belongs to, when that is not the service of the check itself.
func (st *state) mayTakeCheckIDLocked(ask may, id, serviceID string) error {
	if e := st.checks[id]; e != nil && e.cur.Check.ServiceID != serviceID {
		if err := ask(e.cur.Check.ServiceName); err != nil {
			return err
		}
	}
	// The marks of maintenance and draining belong to whom they are about, also before they are set.
	marks := id == catalog.NodeMaintenanceID
	target := ""
	for _, prefix := range []string{catalog.ServiceMaintenancePrefix, catalog.ServiceDrainPrefix} {
		if rest, ok := strings.CutPrefix(id, prefix); ok {
			marks, target = rest != serviceID, rest
		}
	}
	if !marks {
		return nil
	}
	if e := st.services[target]; e != nil {
		return ask(e.cur.Service.Name)
	}
	return ask("")
}

// mayPut asks for everything that a list of registrations results in, before the first is taken.
func (st *state) mayPut(ask may, all []prepared) error {
	if ask == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range all {
		if err := st.mayPutServiceLocked(ask, r.d, r.checks); err != nil {
			return err
		}
	}
	return nil
}
