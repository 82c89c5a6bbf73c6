package logins

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	"corbel.dev/corbel/monitor"
)

// holder is whose a session is.
type holder struct {
	monitor.Caller
	provider provider
	secret   string // a session ends when this changes
	until    int64  // Unix seconds: when the session is over; 0 goes on by refreshing
}

// atMost is a time, or the session's end where that comes before.
func (h *holder) atMost(unix int64) int64 {
	if h.until != 0 {
		return min(unix, h.until)
	}
	return unix
}

// mark changes with the holder's secret, and says nothing about it: it is different for each session.
func (h *holder) mark(session string) string {
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write([]byte(session))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:9])
}

func ofUser(u *monitor.User) *holder {
	return &holder{Caller: monitor.Caller{User: u.Username, Groups: u.Groups}, secret: u.PasswordHash,
		provider: provider{ID: "basic", Type: "basic", UserID: u.Username}}
}

const typeOIDC = "oidc"

func named(who monitor.Caller, by *monitor.AuthProvider, until int64) *holder {
	return &holder{Caller: who, secret: by.Naming(), until: until,
		provider: provider{ID: by.Name, Type: cmp.Or(by.Directory, typeOIDC), UserID: who.User}}
}

// holder is whose the session of a token is; nil is nobody's. Claims that were not signed by us must not come here.
func (l *Logins) holder(c *claims) *holder {
	if p := c.Provider; p != nil && (p.Type == typeOIDC || slices.Contains(monitor.Directories, p.Type)) {
		item := l.cfg.Resources.View().Get("authproviders", "", p.ID)
		if item == nil || c.Until == 0 || l.stored(c.Subject) {
			return nil
		}
		by := item.Object().(*monitor.AuthProvider)
		if cmp.Or(by.Directory, typeOIDC) != p.Type {
			return nil
		}
		return named(monitor.Caller{User: c.Subject, Groups: c.Groups}, by, c.Until)
	}
	if u := l.user(c.Subject); u != nil {
		return ofUser(u)
	}
	return nil
}

// stored tells whether a name is a stored user's, be it a disabled one's: no provider may name anybody like that.
func (l *Logins) stored(name string) bool {
	return l.cfg.Resources.View().Get("users", "", name) != nil
}

// IssueNamed begins a session of somebody whom a provider named. issuer is as for Issue. Errors: ErrStored.
func (l *Logins) IssueNamed(ctx context.Context, who monitor.Caller, by *monitor.AuthProvider,
	issuer string) (Tokens, error) {
	if l.stored(who.User) {
		return Tokens{}, ErrStored
	}
	return l.begin(ctx, named(who, by, l.cfg.Now().Add(RefreshTime).Unix()), issuer)
}
