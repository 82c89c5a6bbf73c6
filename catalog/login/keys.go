package login

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

const (
	keysFor   = 10 * time.Minute // how long fetched keys are used without asking again
	keysAgain = 10 * time.Second // the least time between two questions for a key that is not there
	keptSets  = 256              // addresses whose keys are kept; past it all are forgotten
)

// keyCache keeps the keys of JWKS addresses.
type keyCache struct {
	clock clock.Clock
	mu    sync.Mutex // guards kept; never held while asking
	kept  map[string]*keySet
}

// keySet is one address' keys.
type keySet struct {
	set    jose.JSONWebKeySet
	issuer string
	at     time.Time
}

// pick returns the keys of that ID, all of them for none.
func (s *keySet) pick(kid string) (keys []any) {
	for _, k := range s.set.Keys {
		if k.Use != "enc" && (kid == "" || k.KeyID == "" || k.KeyID == kid) {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// get returns the keys that may have signed a token with that key ID.
func (c *keyCache) get(ctx context.Context, conf *jwtConfig, kid string) (keys []any, issuer string, err error) {
	name := conf.JWKSURL + " " + conf.JWKSCACert + " " + conf.OIDCDiscoveryURL + " " + conf.OIDCDiscoveryCACert
	c.mu.Lock()
	s := c.kept[name]
	c.mu.Unlock()
	if s != nil {
		age := c.clock.Since(s.at)
		if keys = s.pick(kid); age < keysFor && (len(keys) > 0 || age < keysAgain) {
			return keys, s.issuer, nil
		}
	}
	fresh, err := fetchKeys(ctx, conf)
	if err != nil {
		if s != nil && len(keys) > 0 { // what was good goes on to be while the issuer is away
			return keys, s.issuer, nil
		}
		return nil, "", err
	}
	fresh.at = c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= keptSets {
		clear(c.kept)
	}
	c.kept[name] = fresh
	return fresh.pick(kid), fresh.issuer, nil
}

// fetchKeys asks the JWKS address, after having asked where that is when only the issuer is known.
func fetchKeys(ctx context.Context, conf *jwtConfig) (*keySet, error) {
	s := &keySet{}
	address, ca := conf.JWKSURL, conf.JWKSCACert
	if conf.OIDCDiscoveryURL != "" {
		ca = conf.OIDCDiscoveryCACert
		var found struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		if err := get(ctx, ca, strings.TrimSuffix(conf.OIDCDiscoveryURL, "/")+"/.well-known/openid-configuration", &found); err != nil {
			return nil, err
		}
		if strings.TrimSuffix(found.Issuer, "/") != strings.TrimSuffix(conf.OIDCDiscoveryURL, "/") {
			return nil, errkind.Errorf(errkind.Denied, "the issuer at %s says that it is %q", conf.OIDCDiscoveryURL, found.Issuer)
		}
		if err := checkURL("jwks_uri", found.JWKSURI); err != nil {
			return nil, errkind.E(errkind.Unavailable, "", err)
		}
		address, s.issuer = found.JWKSURI, found.Issuer
	}
	return s, get(ctx, ca, address, &s.set)
}

func get(ctx context.Context, ca, address string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	return ask(ctx, ca, r, into)
}
