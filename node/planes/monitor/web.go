package monitorplane

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ldaplogin"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/sso"
	"corbel.dev/corbel/monitor/users"
)

// Web is what the web UI needs of the plane: its API, and logins that go on longer than an access token.
type Web struct {
	API    http.Handler
	logins *logins.Logins
	users  *users.Users
	sso    *sso.SSO
	people *ldaplogin.Directories
}

// Login begins a session of a user by a password. from is whose turn it is in the queue of password checks.
func (w *Web) Login(ctx context.Context, from, user, password string) (session string, err error) {
	who, err := w.users.Login(ctx, from, user, password)
	if errors.Is(err, users.ErrWrong) {
		var by *monitor.AuthProvider
		if who, by, err = w.people.Login(ctx, from, user, password); err == nil {
			t, err := w.logins.IssueNamed(ctx, who, by, "")
			return t.Access, err
		}
	}
	if err != nil {
		return "", err
	}
	t, err := w.logins.Issue(ctx, who, "")
	return t.Access, err
}

// DevSession begins a session of the first administrator where everybody on the host is one.
func (w *Web) DevSession(ctx context.Context) (session string, err error) {
	who, ok := w.users.Named("admin")
	if !ok {
		return "", errkind.New(errkind.Unavailable, "the monitor plane has no administrator yet")
	}
	t, err := w.logins.Issue(ctx, who, "")
	return t.Access, err
}

// Authorize puts on a request what the API takes: an API key as it is, and for a session a fresh access token, as long
// as its user may still log in.
func (w *Web) Authorize(r *http.Request, session string) error {
	r.Header.Del("Authorization")
	if session == "" {
		return nil
	}
	if key, ok := strings.CutPrefix(session, "Key "); ok {
		r.Header.Set("Authorization", "Key "+key)
		return nil
	}
	t, err := w.logins.Again(r.Context(), session)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+t.Access)
	return nil
}

// Who tells apart the users of sessions, and those of API keys by the key; "" is nobody.
func (w *Web) Who(session string) string {
	if session == "" || strings.HasPrefix(session, "Key ") {
		return session
	}
	who, err := w.logins.Holds(session)
	if err != nil {
		return ""
	}
	return "user " + who.User + "\x00" + strings.Join(who.Groups, "\x00")
}
