package acme

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
)

// authz is the proof of one name, under "acme/authz/<account>/<id>".
type authz struct {
	ID         string      `json:"id"`
	Name       Identifier  `json:"name"` // without "*."
	Wildcard   bool        `json:"wildcard,omitempty"`
	Status     string      `json:"status"`
	Expires    time.Time   `json:"expires"`
	Challenges []challenge `json:"challenges"`
}

// challenge is one way to prove it.
type challenge struct {
	Type      string    `json:"type"`
	Token     string    `json:"token"`
	Status    string    `json:"status"`
	Validated time.Time `json:"validated,omitzero"`
	Error     *Problem  `json:"error,omitempty"`
}

// The types of challenges.
const (
	http01 = "http-01"
	dns01  = "dns-01"
	alpn01 = "tls-alpn-01"
)

func newAuthz(name Identifier, expires time.Time) *authz {
	z := &authz{ID: uuid.NewString(), Name: name, Status: statusPending, Expires: expires}
	kinds := []string{http01, alpn01, dns01}
	if name.Type == "ip" {
		kinds = kinds[:2]
	}
	if z.Name.Value, z.Wildcard = strings.CutPrefix(name.Value, "*."); z.Wildcard {
		kinds = []string{dns01} // a host proves nothing of its neighbours
	}
	for _, kind := range kinds {
		z.Challenges = append(z.Challenges, challenge{Type: kind, Token: draw(), Status: statusPending})
	}
	return z
}

func (c *call) authz(id string) (*authz, error) {
	z, err := get[authz](c, c.view, c.authzKey(id))
	if err == nil && (z == nil || !c.r.Now.Before(z.Expires)) {
		err = problem(http.StatusNotFound, "malformed", "the account has no such authorization")
	}
	return z, err
}

func (c *call) authorization() (*secrets.Response, error) {
	z, err := c.authz(c.parts[1])
	if err != nil {
		return nil, err
	}
	var in struct {
		Status string `json:"status"`
	}
	if _, err := c.payload(&in); err != nil {
		return nil, err
	}
	switch in.Status {
	case "":
	case statusDeactivated:
		z.Status = statusDeactivated
		if err := c.put(c.authzKey(z.ID), z); err != nil {
			return nil, err
		}
	default:
		return nil, malformed("status can be set to deactivated alone")
	}
	list := make([]map[string]any, len(z.Challenges))
	for i := range z.Challenges {
		list[i] = c.showChallenge(z, &z.Challenges[i])
	}
	out := map[string]any{"status": z.Status, "identifier": z.Name, "expires": z.Expires.Format(time.RFC3339),
		"challenges": list}
	if z.Wildcard {
		out["wildcard"] = true
	}
	return c.object(http.StatusOK, out)
}

func (c *call) showChallenge(z *authz, ch *challenge) map[string]any {
	out := map[string]any{"type": ch.Type, "status": ch.Status, "token": ch.Token,
		"url": c.base + "challenge/" + z.ID + "/" + ch.Type}
	if !ch.Validated.IsZero() {
		out["validated"] = ch.Validated.Format(time.RFC3339)
	}
	if ch.Error != nil {
		out["error"] = ch.Error
	}
	return out
}

func (c *call) answerChallenge(z *authz, ch *challenge) (*secrets.Response, error) {
	return c.object(http.StatusOK, c.showChallenge(z, ch), "Link", "<"+c.base+"authorization/"+z.ID+">;rel=\"up\"")
}

// challenge shows one, or looks whether it is met.
func (c *call) challenge() (*secrets.Response, error) {
	z, err := c.authz(c.parts[1])
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(z.Challenges, func(ch challenge) bool { return ch.Type == c.parts[2] })
	if n < 0 {
		return nil, problem(http.StatusNotFound, "malformed", "the authorization has no such challenge")
	}
	ch := &z.Challenges[n]
	empty, err := c.payload(&struct{}{})
	if err != nil {
		return nil, err
	}
	if empty || z.Status != statusPending || ch.Status == statusValid || ch.Status == statusInvalid {
		return c.answerChallenge(z, ch)
	}
	k, err := parseKey(c.acct.Key)
	if err != nil {
		return nil, err
	}
	ch.Status = statusProcessing
	if err := c.put(c.authzKey(z.ID), z); err != nil {
		return nil, err
	}
	return &secrets.Response{Then: step(func(ctx context.Context) (*secrets.Response, error) {
		c.ops = nil // committed by now
		leave, ok := c.s.Prober.enter()
		if !ok { // it stays as it is: the client asks again
			return c.finish(nil, problem(http.StatusTooManyRequests, "rateLimited",
				"%d challenges are being looked at: try again", probes))
		}
		defer leave()
		return c.looked(z, ch, c.s.Prober.Probe(ctx, ch.Type, z.Name, ch.Token, ch.Token+"."+k.print, c.set.Resolver))
	})}, nil
}

// step is a look that follows once it was written down.
type step func(ctx context.Context) (*secrets.Response, error)

// Step does what follows a response, as engine.Stepper says.
func Step(ctx context.Context, then any) (*secrets.Response, error) { return then.(step)(ctx) }

// looked stores what came of a look at a challenge.
func (c *call) looked(z *authz, ch *challenge, err error) (*secrets.Response, error) {
	if err == nil {
		ch.Status, ch.Validated, z.Status = statusValid, c.r.Now.UTC(), statusValid
	} else {
		p, is := problemOf(err)
		if !is {
			p = problem(http.StatusForbidden, "connection", "%v", err)
		}
		ch.Status, ch.Error, z.Status = statusInvalid, p, statusInvalid
	}
	if err := c.put(c.authzKey(z.ID), z); err != nil {
		return nil, err
	}
	return c.finish(c.answerChallenge(z, ch))
}
