package uiapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// dueOf is a login that lacks a passcode, of the app or of the phone; nobody's enforcement names no method.
func dueOf(user string) *Due {
	d := &Due{Asks: []Ask{{Name: "people", Methods: []Method{{ID: "1", Name: "app"}, {ID: "2", Name: "phone"}}}},
		End: func(_ *http.Request, codes map[string]string) (Person, error) {
			switch {
			case len(codes) != 1:
				return Person{}, errkind.Errorf(errkind.Invalid, "codes: %v", codes)
			case codes["1"] == "over":
				return Person{}, ErrOver
			case codes["1"] == "" && codes["2"] == "down":
				return Person{}, errkind.New(errkind.Unavailable, "no leader")
			case codes["1"] != "123456":
				return Person{}, errkind.New(errkind.Denied, "method app: the passcode is wrong")
			}
			return Person{Name: user, Catalog: "right"}, nil
		}}
	if user == "nobody" {
		d.Asks[0].Methods = nil
	}
	return d
}

// due begins a login and gives its handle: there is no session before its passcode.
func (s *served) due(b *http.Client) string {
	s.t.Helper()
	code, text := s.do(b, "POST", "/ui/api/login", `{"user":"ann","password":"pw"}`)
	var in struct {
		Factor struct {
			Handle string
			Asks   json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(text), &in); code != 200 || err != nil || len(in.Factor.Handle) < 26 ||
		string(in.Factor.Asks) != `[{"name":"people","methods":[{"id":"1","name":"app"},{"id":"2","name":"phone"}]}]` {
		s.t.Fatalf("%d %s", code, text)
	}
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first")
	return in.Factor.Handle
}

// codes is a request of login/factor.
func codes(handle, method, code string) string {
	return `{"handle":"` + handle + `","codes":{"` + method + `":"` + code + `"}}`
}

func TestFactor(t *testing.T) {
	t.Parallel()
	const path, wrong = "/ui/api/login/factor", "method app: the passcode is wrong"
	over := ErrOver.Error()
	s := serve(t)
	b, other := s.browser(), s.browser()
	handle := s.due(b)
	theirs := s.due(other)
	s.want(other, "POST", path, codes(handle, "1", "123456"), 403, over)       // another browser's
	s.want(s.browser(), "POST", path, codes(handle, "1", "123456"), 403, over) // one without a cookie
	s.want(b, "POST", path, codes("none", "1", "123456"), 403, over)           // none
	s.want(b, "POST", path, codes(handle, "3", "123456"), 400, "codes: a passcode of app is missing")
	s.want(b, "POST", path, codes(handle, "1", ""), 400, "codes: a passcode of app is missing")
	s.want(b, "POST", path, codes(handle, "1", "000000"), 403, wrong)
	s.want(b, "POST", path, codes(handle, "2", "down"), 503, "no leader")
	s.want(b, "GET", "/ui/api/me", "", 401, "log in first")
	for _, site := range []string{"cross-site", "same-site"} {
		s.want(b, "POST", path, codes(handle, "1", "123456"), 403, "this page belongs to another site",
			"Sec-Fetch-Site", site)
	}
	if code, _ := s.do(b, "POST", path, codes(handle, "1", "123456"), "Origin", "https://evil.example"); code != 403 {
		t.Errorf("another origin's page: %d", code)
	}
	s.want(b, "POST", path, codes(handle, "1", "123456"), 200, `{"name":"ann"}`)
	s.want(b, "GET", "/ui/api/me", "", 200, `{"name":"ann","open":false}`)
	s.want(other, "GET", "/ui/api/me", "", 401, "log in first")

	// A handle ends one login: neither again here, nor with the cookie that was.
	s.want(b, "POST", path, codes(handle, "1", "123456"), 403, over)
	at, err := url.Parse(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(at) {
		if c.Name == dueCookie {
			t.Errorf("the cookie is there still: %v", c)
		}
	}
	held := other.Jar.Cookies(at)
	s.want(other, "POST", path, codes(theirs, "1", "123456"), 200, `{"name":"ann"}`)
	thief := s.browser()
	thief.Jar.SetCookies(at, held)
	s.want(thief, "POST", path, codes(theirs, "1", "123456"), 403, over)
	s.want(thief, "GET", "/ui/api/me", "", 401, "log in first")

	// It has so many tries, and so much time; what the plane has forgotten is over here too.
	b = s.browser()
	handle = s.due(b)
	for range dueTries {
		s.want(b, "POST", path, codes(handle, "1", "000000"), 403, wrong)
	}
	s.want(b, "POST", path, codes(handle, "1", "123456"), 403, over)
	handle = s.due(b)
	s.clock.Advance(dueTime)
	s.want(b, "POST", path, codes(handle, "1", "123456"), 403, over)
	handle = s.due(b)
	s.want(b, "POST", path, codes(handle, "1", "over"), 403, over)
	s.want(b, "POST", path, codes(handle, "1", "123456"), 403, over)
	s.want(b, "POST", "/ui/api/login", `{"user":"nobody","password":"pw"}`, 403,
		"the login enforcement people names no method that exists: an operator must change it")
}

// TestDuesAreBounded: the oldest login that waits goes for a new one, of the same person if that has many, and those
// whose time is over before it.
func TestDuesAreBounded(t *testing.T) {
	t.Parallel()
	c := clock.NewFake(clock.Real{}.Now())
	d := &dues{clock: c, list: map[[32]byte]*waiting{}}
	took := func(handle, browser string) bool {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(&http.Cookie{Name: dueCookie, Value: browser})
		return d.take(r, handle) != nil
	}
	first, firstBrowser := d.add(&Due{Who: "a"})
	for range maxOfPerson + 3 {
		d.add(&Due{Who: "b"})
	}
	if len(d.list) != 1+maxOfPerson {
		t.Errorf("%d logins wait, want one and %d of another person", len(d.list), maxOfPerson)
	}
	for key, w := range d.list {
		if w.Who == "b" {
			delete(d.list, key)
		}
	}
	c.Advance(dueTime - 1)
	second, secondBrowser := d.add(&Due{Who: "c"})
	for i := range maxDue - 2 { // as fillers of the list, without looking at all of them each time
		d.list[[32]byte{byte(i), byte(i >> 8), 1}] = &waiting{Due: &Due{Who: fmt.Sprint(i)}, until: c.Now().Add(dueTime)}
	}
	d.add(&Due{})
	if len(d.list) > maxDue || took(first, firstBrowser) || !took(second, secondBrowser) {
		t.Errorf("%d logins wait", len(d.list))
	}
	c.Advance(dueTime)
	if d.add(&Due{}); len(d.list) != 1 {
		t.Errorf("%d logins wait, of which one has time left", len(d.list))
	}
}
