package uiapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// A login whose first factor was good and that lacks a second one waits here until its passcodes come (login/factor).
// The page is told a handle, which is good with a cookie of the same browser alone and for one login: neither is a
// session, nor becomes one.

// Due is the error of a login that needs passcodes before there is a session.
type Due struct {
	// Who logs in, "" where that is not known: one person's logins do not push others' out.
	Who  string
	Asks []Ask
	// End ends the login with passcodes by the IDs of the methods that they are of. Where it fails, the person may try
	// again, unless it is with ErrOver.
	End func(r *http.Request, codes map[string]string) (Person, error)
}

func (*Due) Error() string { return "this login needs a second factor" }

// Ask is a passcode that is lacking: one of any of its methods is enough.
type Ask struct {
	Name    string   `json:"name"` // of the rule that asks
	Methods []Method `json:"methods"`
}

// ErrOver says that a login waits no longer for its second factor.
var ErrOver = errkind.New(errkind.Denied, "no login waits for a passcode in this browser: it has ended, or has waited "+
	"for too long. Log in again")

const (
	dueCookie = "corbel_factor"
	dueTime   = 5 * time.Minute // that a login waits
	dueTries  = 5               // that it has
	// maxDue bounds the logins that wait, and maxOfPerson those of one person: the oldest goes for a new one. Each of
	// them costs a good first factor.
	maxDue      = 10_000
	maxOfPerson = 16 // as many as the secrets plane keeps
)

// dues are the logins that wait. It is safe for concurrent use.
type dues struct {
	clock clock.Clock

	mu   sync.Mutex
	list map[[sha256.Size]byte]*waiting // by the hash of the handle
}

type waiting struct {
	*Due
	browser [sha256.Size]byte // the hash of its cookie
	until   time.Time
	tries   int
}

// add keeps a login, and gives the handle and what the browser's cookie is to hold.
func (d *dues) add(due *Due) (handle, browser string) {
	handle, browser = rand.Text(), rand.Text()
	d.put(handle, &waiting{Due: due, browser: hash(browser), until: d.clock.Now().Add(dueTime)})
	return handle, browser
}

func (d *dues) put(handle string, w *waiting) {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var oldest, own [sha256.Size]byte
	sooner := func(a *waiting, than [sha256.Size]byte) bool {
		first := d.list[than]
		return first == nil || a.until.Before(first.until)
	}
	has := 0
	for key, other := range d.list {
		if !now.Before(other.until) {
			delete(d.list, key)
			continue
		}
		if sooner(other, oldest) {
			oldest = key
		}
		if w.Who != "" && other.Who == w.Who {
			if has++; sooner(other, own) {
				own = key
			}
		}
	}
	switch {
	case has >= maxOfPerson:
		delete(d.list, own)
	case len(d.list) >= maxDue:
		delete(d.list, oldest)
	}
	d.list[hash(handle)] = w
}

// take gives the login of a handle to the browser that began it: to one request at a time. nil is none.
func (d *dues) take(r *http.Request, handle string) *waiting {
	c, err := r.Cookie(dueCookie)
	if err != nil {
		return nil
	}
	browser, key := hash(c.Value), hash(handle)
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.list[key]
	if w == nil || subtle.ConstantTimeCompare(w.browser[:], browser[:]) != 1 {
		return nil
	}
	delete(d.list, key)
	if !d.clock.Now().Before(w.until) {
		return nil
	}
	return w
}

// back has a login wait on after a try that failed.
func (d *dues) back(handle string, w *waiting) {
	if w.tries++; w.tries < dueTries {
		d.put(handle, w)
	}
}

// enter answers a login: with a session, with what is lacking, or with why not.
func (a *API) enter(w http.ResponseWriter, r *http.Request, p Person, err error) {
	var due *Due
	switch {
	case errors.As(err, &due):
		a.demand(w, r, due)
	case err != nil:
		fail(w, err)
	default:
		http.SetCookie(w, a.sessions.Begin(r, p))
		answer(w, map[string]string{"name": p.Name})
	}
}

func (a *API) demand(w http.ResponseWriter, r *http.Request, due *Due) {
	for _, ask := range due.Asks {
		if len(ask.Methods) == 0 {
			fail(w, errkind.Errorf(errkind.Denied, "the login enforcement %s names no method that exists: an operator must "+
				"change it", ask.Name))
			return
		}
	}
	handle, browser := a.dues.add(due)
	http.SetCookie(w, visit(r, dueCookie, browser, int(dueTime/time.Second)))
	answer(w, map[string]any{"factor": map[string]any{"handle": handle, "asks": due.Asks}})
}

func (a *API) factor(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Handle string            `json:"handle"`
		Codes  map[string]string `json:"codes"` // by the methods' IDs
	}
	if !read(w, r, &in) {
		return
	}
	waits := a.dues.take(r, in.Handle)
	if waits == nil {
		fail(w, ErrOver)
		return
	}
	codes, err := waits.codes(in.Codes)
	if err != nil {
		a.dues.put(in.Handle, waits) // nothing was tried
		fail(w, err)
		return
	}
	p, err := waits.End(r, codes)
	if err != nil {
		if !errors.Is(err, ErrOver) {
			a.dues.back(in.Handle, waits)
		}
		fail(w, err)
		return
	}
	http.SetCookie(w, visit(r, dueCookie, "", -1))
	a.enter(w, r, p, nil)
}

// codes are the passcodes that were asked for: one at least of each.
func (d *Due) codes(given map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, ask := range d.Asks {
		has := false
		for _, m := range ask.Methods {
			if given[m.ID] != "" {
				out[m.ID], has = given[m.ID], true
			}
		}
		if !has {
			return nil, errkind.Errorf(errkind.Invalid, "codes: a passcode of %s is missing", ask.Methods[0].Name)
		}
	}
	return out, nil
}
