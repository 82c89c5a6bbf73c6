package usagecacheplane

import (
	"context"
	"crypto/subtle"
	"math"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/plane"
)

// judge says who may use the cache: who knows its password, or has a token with the right.
type judge struct {
	d        *plane.Doors
	password string
}

// An agent asks a server within these times. What a server said of a client that is connected may be freshRight old, so
// that a right that was taken shows in the next look at it.
const (
	loginPatience = 5 * time.Second
	stillPatience = time.Second
	freshRight    = 500 * time.Millisecond
)

// comesIn says whether a client may log in.
func (j *judge) comesIn(user, secret string) bool {
	return j.holds(user, secret, loginPatience, math.MaxInt64) == nil
}

// still says why a client that has logged in may not stay. Where no server answers, acl.down_policy decides.
func (j *judge) still(user, secret string) error {
	return j.holds(user, secret, stillPatience, freshRight)
}

func (j *judge) holds(user, secret string, patience, age time.Duration) error {
	if j.password != "" && user == "default" && subtle.ConstantTimeCompare([]byte(secret), []byte(j.password)) == 1 {
		return nil
	}
	if !j.d.Cfg.ACL.Enabled {
		return errkind.New(errkind.Denied, "the password of the cache is another one")
	}
	if secret == "" {
		secret = j.d.Tokens.Get(base.TokenDefault)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	grant, err := j.d.GrantWithin(ctx, secret, age)
	if err != nil {
		return err
	}
	return grant.Check(acl.Service, Service, acl.Write)
}
