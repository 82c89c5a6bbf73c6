// Package logins hands out the tokens that the API is used with, and knows whose a token is.
//
// An access token holds for five minutes and says all there is to say, so a login costs no write, whatever the storm. A
// refresh token holds for twelve hours and may be used once: the first use writes a record of the session, and
// later ones move it on (one write for each). One that comes a second time ends its session, since somebody has a
// copy. So does logging out, at once and on every server; a session ends too when its user is disabled or has a new
// password.
//
// Who was named by an OpenID provider is no stored user: the tokens themselves say the name and the groups (holder.go).
// Such a session ends RefreshTime after its login, however often it was refreshed, and when the provider is deleted or
// names people in another way.
//
// Records are bounded: they go some time after their session has ended, and beyond MaxRecords, or MaxUserRecords of
// one user, no session is refreshed, which makes its user log in again. One user's do not keep others from theirs.
package logins

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

// How long tokens hold: the contract's times.
const (
	AccessTime  = 5 * time.Minute
	RefreshTime = 12 * time.Hour
)

// MaxRecords is how many sessions may have been refreshed or ended within RefreshTime.
const MaxRecords = 100_000

// MaxUserRecords is how many of these one user may have.
const MaxUserRecords = 1000

// ErrWrong is the answer to a token that does not hold, of kind Denied.
var ErrWrong = errkind.New(errkind.Denied, "invalid token")

// ErrStored is the answer to a person whom a provider gives the name of a stored user, of kind Denied: whoever chooses
// a name at the provider would be that user.
var ErrStored = errkind.New(errkind.Denied, "a stored user has the name that the provider gives this person: set the "+
	"provider's username_prefix")

// Config of Logins.
type Config struct {
	Resources *resources.Resources
	Now       func() time.Time
	// PrivateKey and PublicKey, in PEM, sign and check tokens in place of a secret that the servers share. PublicKey may
	// stand alone: then tokens of another cluster are accepted, and none are handed out.
	PrivateKey, PublicKey []byte
}

// Logins makes and checks tokens. All methods may be called from any goroutine.
type Logins struct {
	cfg    Config
	fixed  *jwks.Own
	secret atomic.Pointer[signer]
}

// signer signs with a secret that was stored.
type signer struct {
	item *objects.Item
	own  *jwks.Own
}

// Tokens are what a login gives.
type Tokens struct {
	Access  string `json:"access_token"`
	Expires int64  `json:"expires_at"` // Unix seconds, of Access
	Refresh string `json:"refresh_token"`
}

// claims are what a token says, in the words of the contract.
type claims struct {
	Subject  string    `json:"sub"`
	ID       string    `json:"jti"`
	Expires  int64     `json:"exp"`
	Issuer   string    `json:"iss,omitempty"`
	Groups   []string  `json:"groups,omitempty"`
	Provider *provider `json:"provider,omitempty"`
	APIKey   bool      `json:"api_key"`
	Session  string    `json:"session_id"`
	Use      string    `json:"use,omitempty"` // of refresh tokens
	Turn     uint64    `json:"turn,omitempty"`
	Password string    `json:"pwd,omitempty"`   // tells one password of the user from another
	Until    int64     `json:"until,omitempty"` // Unix seconds: when the session is over; 0 goes on by refreshing
}

type provider struct {
	ID     string `json:"provider_id"`
	Type   string `json:"provider_type"`
	UserID string `json:"user_id"`
}

const useRefresh = "refresh"

// New returns Logins. Errors: keys that cannot be read.
func New(cfg Config) (*Logins, error) {
	l := &Logins{cfg: cfg}
	if len(cfg.PrivateKey)+len(cfg.PublicKey) > 0 {
		own, err := jwks.NewEC(cfg.PrivateKey, cfg.PublicKey)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "keys of tokens", err)
		}
		l.fixed = own
	}
	return l, nil
}

const secretName = "jwt"

// own returns what signs; the first one who asks for it makes the secret.
func (l *Logins) own(ctx context.Context, mayMake bool) (*jwks.Own, error) {
	if l.fixed != nil {
		return l.fixed, nil
	}
	item := l.cfg.Resources.View().Get("settings", "", secretName)
	if item == nil && !mayMake {
		return nil, ErrWrong
	}
	if item == nil {
		secret := &monitor.Setting{Name: secretName, Value: []byte(rand.Text() + rand.Text())}
		err := l.cfg.Resources.Write(ctx, objects.Op{Verb: objects.Create, Type: "settings", Name: secretName,
			Encoded: tagproto.Append(nil, secret)})
		if err != nil && !errkind.Is(err, errkind.Conflict) {
			return nil, err
		}
		if item = l.cfg.Resources.View().Get("settings", "", secretName); item == nil {
			return nil, errkind.Errorf(errkind.Unavailable, "the secret that signs tokens has not reached this server yet")
		}
	}
	if s := l.secret.Load(); s != nil && s.item == item {
		return s.own, nil
	}
	own, err := jwks.NewSecret(item.Object().(*monitor.Setting).Value)
	if err != nil {
		return nil, errkind.E(errkind.Corrupt, "the secret that signs tokens", err)
	}
	l.secret.Store(&signer{item, own})
	return own, nil
}

// Issue begins a session. issuer is the address that the caller reached us by.
func (l *Logins) Issue(ctx context.Context, who monitor.Caller, issuer string) (Tokens, error) {
	user := l.user(who.User)
	if user == nil {
		return Tokens{}, ErrWrong
	}
	return l.begin(ctx, ofUser(user), issuer)
}

func (l *Logins) begin(ctx context.Context, h *holder, issuer string) (Tokens, error) {
	own, err := l.own(ctx, true)
	if err != nil {
		return Tokens{}, err
	}
	return l.tokens(own, h, issuer, uuid.NewString(), 0)
}

func (l *Logins) tokens(own *jwks.Own, h *holder, issuer, session string, turn uint64) (t Tokens, err error) {
	now := l.cfg.Now()
	t.Expires = h.atMost(now.Add(AccessTime).Unix())
	access := claims{
		Subject: h.User, ID: uuid.NewString(), Expires: t.Expires, Issuer: issuer, Groups: h.Groups,
		Session: session, Provider: &h.provider, Password: h.mark(session), Until: h.until,
	}
	if t.Access, err = own.Sign(access); err != nil {
		return Tokens{}, err
	}
	refresh := claims{
		Subject: h.User, ID: uuid.NewString(), Expires: h.atMost(now.Add(RefreshTime).Unix()), Session: session,
		Use: useRefresh, Turn: turn, Password: h.mark(session), Until: h.until,
	}
	if h.until != 0 { // nothing is stored of who that is
		refresh.Groups, refresh.Provider = h.Groups, &h.provider
	}
	t.Refresh, err = own.Sign(refresh)
	return t, err
}

// user returns who may log in; nil is nobody.
func (l *Logins) user(name string) *monitor.User {
	item := l.cfg.Resources.View().Get("users", "", name)
	if item == nil {
		return nil
	}
	if u := item.Object().(*monitor.User); !u.Disabled {
		return u
	}
	return nil
}

func (l *Logins) record(session string) *objects.Item {
	return l.cfg.Resources.View().Get("logins", "", session)
}

// valid reads a token of ours whose holder and session are what they were. late accepts one whose time is over.
func (l *Logins) valid(token string, late bool) (c claims, h *holder, err error) {
	own, err := l.own(context.Background(), false)
	if err != nil {
		return c, nil, err
	}
	now := l.cfg.Now().Unix()
	if own.Check(token, &c) != nil || !late && now >= c.Expires || c.Until != 0 && now >= c.Until {
		return c, nil, ErrWrong
	}
	if h = l.holder(&c); h == nil || !hmac.Equal([]byte(c.Password), []byte(h.mark(c.Session))) {
		return c, nil, ErrWrong
	}
	if item := l.record(c.Session); item != nil && item.Object().(*monitor.Login).Ended {
		return c, nil, ErrWrong
	}
	return c, h, nil
}

// Check returns whose an access token is, with the groups that the user is in now. Errors: ErrWrong.
func (l *Logins) Check(access string) (monitor.Caller, error) {
	c, h, err := l.valid(access, false)
	if err != nil || c.Use != "" {
		return monitor.Caller{}, ErrWrong
	}
	return h.Caller, nil
}

// Holds is Check for what goes on longer than an access token is good for: it holds as long as the session may, until
// that was ended. Errors: ErrWrong.
func (l *Logins) Holds(access string) (monitor.Caller, error) {
	_, h, err := l.lasting(access)
	if err != nil {
		return monitor.Caller{}, err
	}
	return h.Caller, nil
}

// Again gives a session that Holds a token of now, without a write. Errors: ErrWrong.
func (l *Logins) Again(ctx context.Context, access string) (Tokens, error) {
	c, h, err := l.lasting(access)
	if err != nil {
		return Tokens{}, err
	}
	own, err := l.own(ctx, true)
	if err != nil {
		return Tokens{}, err
	}
	return l.tokens(own, h, "", c.Session, 0)
}

func (l *Logins) lasting(access string) (claims, *holder, error) {
	c, h, err := l.valid(access, true)
	if err != nil || c.Use != "" || l.cfg.Now().Unix() >= c.Expires+int64(RefreshTime/time.Second) {
		return c, nil, ErrWrong
	}
	return c, h, nil
}

// Refresh takes both tokens of a session, of which access may have expired, to new ones. Errors: ErrWrong;
// Overloaded, there are too many sessions; those of resources.Write.
func (l *Logins) Refresh(ctx context.Context, access, refresh, issuer string) (Tokens, error) {
	a, _, err := l.valid(access, true)
	if err != nil || a.Use != "" {
		return Tokens{}, ErrWrong
	}
	c, h, err := l.valid(refresh, false)
	if err != nil || c.Use != useRefresh || c.Session != a.Session || c.Subject != a.Subject {
		return Tokens{}, ErrWrong
	}
	own, err := l.own(ctx, true)
	if err != nil {
		return Tokens{}, err
	}
	item := l.record(c.Session)
	op := objects.Op{Verb: objects.Create}
	if item != nil {
		op = objects.Op{Verb: objects.Put, If: item.Index}
		if used := item.Object().(*monitor.Login).Turn; c.Turn != used {
			return Tokens{}, l.end(ctx, c) // a copy: whoever has the newest token is cut off too
		}
	} else if c.Turn != 0 {
		return Tokens{}, ErrWrong // its record went: its session is over
	} else if err := l.room(h.User); err != nil {
		return Tokens{}, err
	}
	next := &monitor.Login{ID: c.Session, Turn: c.Turn + 1, User: h.User,
		Expires: l.cfg.Now().Add(RefreshTime).Unix()}
	switch err := l.write(ctx, op, next); {
	case errors.Is(err, objects.ErrPrecondition), errkind.Is(err, errkind.Conflict):
		// somebody else used the same token meanwhile
		return Tokens{}, ErrWrong
	case err != nil:
		return Tokens{}, err
	}
	return l.tokens(own, h, issuer, c.Session, next.Turn)
}

// End ends the session of both tokens. Errors: ErrWrong; those of resources.Write.
func (l *Logins) End(ctx context.Context, access, refresh string) error {
	a, _, err := l.valid(access, true)
	if err != nil {
		return err
	}
	c, _, err := l.valid(refresh, true)
	if err != nil {
		return err
	}
	if a.Use != "" || c.Use != useRefresh || a.Session != c.Session {
		return ErrWrong
	}
	if l.record(c.Session) == nil {
		if err := l.room(c.Subject); err != nil {
			return err
		}
	}
	if err := l.end(ctx, c); err != nil && !errors.Is(err, ErrWrong) {
		return err
	}
	return nil
}

// end writes that a session is over, and returns ErrWrong.
func (l *Logins) end(ctx context.Context, c claims) error {
	over := &monitor.Login{ID: c.Session, Turn: c.Turn, Ended: true, User: c.Subject,
		Expires: l.cfg.Now().Add(RefreshTime).Unix()}
	if err := l.write(ctx, objects.Op{Verb: objects.Put}, over); err != nil {
		return err
	}
	return ErrWrong
}

func (l *Logins) write(ctx context.Context, op objects.Op, r *monitor.Login) error {
	op.Type, op.Name, op.Encoded = "logins", r.ID, tagproto.Append(nil, r)
	return l.cfg.Resources.Write(ctx, op)
}

// room tells whether there may be one more record for a user. Error: Overloaded.
func (l *Logins) room(user string) error {
	view := l.cfg.Resources.View()
	if view.Len() < MaxUserRecords {
		return nil
	}
	all, own := 0, 0
	view.List("logins", "", "", "", func(item *objects.Item) bool {
		all++
		if item.Object().(*monitor.Login).User == user {
			own++
		}
		return all < MaxRecords && own < MaxUserRecords
	})
	switch {
	case own >= MaxUserRecords:
		return errkind.Errorf(errkind.Overloaded, "user %q has more than %d sessions of the last %v: those that are there "+
			"go on, others end by themselves; log in again", user, MaxUserRecords, RefreshTime)
	case all >= MaxRecords:
		return errkind.Errorf(errkind.Overloaded, "there are more than %d sessions: this one ends by itself; log in again",
			MaxRecords)
	}
	return nil
}
