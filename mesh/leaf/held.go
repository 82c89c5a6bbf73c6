package leaf

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Held is a certificate as the host that keeps it tells of it: no key, and nothing that is signed with one.
type Held struct {
	Subject                 Subject
	SerialNumber, RootID    string
	ValidAfter, ValidBefore time.Time
	// Failed says why the last try to get or renew it came to nothing; "" while that went well.
	Failed string
}

// Held lists the certificates that this host keeps, and those that it could not get, by kind and name.
func (l *Leaves) Held() []Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Held
	for _, k := range l.kinds {
		h := Held{Subject: k.what}
		if k.err != nil {
			h.Failed = errkind.Text(k.err)
		}
		if c := k.leaf; c != nil {
			h.SerialNumber, h.RootID, h.ValidAfter, h.ValidBefore = c.SerialNumber, c.RootID, c.ValidAfter, c.ValidBefore
		} else if k.err == nil {
			continue // it is being asked for
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.Name, b.Subject.Name))
	})
	return list
}
