package jwks

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"corbel.dev/corbel/kit/errkind"
)

const (
	keysFor   = 10 * time.Minute // how long fetched keys are used without asking again
	keysAgain = 10 * time.Second // the least time between two questions for a key that is not there
	keptSets  = 256              // addresses whose keys are kept; past it the oldest goes
)

// Keys keeps the keys of sources. Make it with New.
type Keys struct {
	now    func() time.Time
	mu     sync.Mutex // guards what follows; never held while asking
	kept   map[Source]*keySet
	asking map[Source]*question
}

// New makes an empty Keys.
func New(now func() time.Time) *Keys {
	return &Keys{now: now, kept: map[Source]*keySet{}, asking: map[Source]*question{}}
}

// keySet is one source's keys.
type keySet struct {
	set    jose.JSONWebKeySet
	issuer string
	ends   Endpoints
	at     time.Time
}

// Endpoints are where an issuer that was discovered is asked for more than its keys; "" where it does not say.
type Endpoints struct {
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	UserInfo      string   `json:"userinfo_endpoint"`
	TokenAuth     []string `json:"token_endpoint_auth_methods_supported"`
}

// Endpoints gives those of a source with Discovery, and its issuer. Errors are as those of Verify.
func (k *Keys) Endpoints(ctx context.Context, from Source) (ends Endpoints, issuer string, err error) {
	k.mu.Lock()
	s := k.kept[from]
	k.mu.Unlock()
	if s != nil {
		if age := k.now().Sub(s.at); age >= 0 && age < keysFor {
			return s.ends, s.issuer, nil
		}
	}
	fresh, err := k.ask(ctx, from)
	switch {
	case err == nil:
		return fresh.ends, fresh.issuer, nil
	case s != nil:
		return s.ends, s.issuer, nil
	}
	return ends, "", err
}

// question is one that is under way.
type question struct {
	done chan struct{} // closed when the rest is set
	set  *keySet
	err  error
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
func (k *Keys) get(ctx context.Context, from Source, kid string) (keys []any, issuer string, err error) {
	k.mu.Lock()
	s := k.kept[from]
	k.mu.Unlock()
	if s != nil {
		age := k.now().Sub(s.at)
		if keys = s.pick(kid); age >= 0 && age < keysFor && (len(keys) > 0 || age < keysAgain) {
			return keys, s.issuer, nil
		}
	}
	fresh, err := k.ask(ctx, from)
	if err != nil {
		if s != nil && len(keys) > 0 { // what was good goes on to be while the issuer is away
			return keys, s.issuer, nil
		}
		return nil, "", err
	}
	return fresh.pick(kid), fresh.issuer, nil
}

// ask asks the source, or waits for who asks it already.
func (k *Keys) ask(ctx context.Context, from Source) (*keySet, error) {
	k.mu.Lock()
	q := k.asking[from]
	if q != nil {
		k.mu.Unlock()
		select {
		case <-q.done:
			return q.set, q.err
		case <-ctx.Done():
			return nil, errkind.E(errkind.Unavailable, "ask for the keys", ctx.Err())
		}
	}
	q = &question{done: make(chan struct{})}
	k.asking[from] = q
	k.mu.Unlock()
	// Others wait for it: it goes on when who asked first is gone, within its own deadline.
	q.set, q.err = fetch(context.WithoutCancel(ctx), from)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.asking, from)
	if q.err == nil {
		q.set.at = k.now()
		k.makeRoomLocked()
		k.kept[from] = q.set
	}
	close(q.done)
	return q.set, q.err
}

func (k *Keys) makeRoomLocked() {
	if len(k.kept) < keptSets {
		return
	}
	var oldest Source
	var at time.Time
	for from, s := range k.kept {
		if at.IsZero() || s.at.Before(at) {
			oldest, at = from, s.at
		}
	}
	delete(k.kept, oldest)
}

// fetch asks the JWKS address, after having asked where that is when only the issuer is known.
func fetch(ctx context.Context, from Source) (*keySet, error) {
	s := &keySet{}
	address, ca := from.URL, from.CA
	if from.Discovery != "" {
		ca = from.DiscoveryCA
		var found struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
			Endpoints
		}
		if err := get(ctx, ca, strings.TrimSuffix(from.Discovery, "/")+"/.well-known/openid-configuration",
			&found); err != nil {
			return nil, err
		}
		if strings.TrimSuffix(found.Issuer, "/") != strings.TrimSuffix(from.Discovery, "/") {
			return nil, errkind.Errorf(errkind.Denied, "the issuer at %s says that it is %q", from.Discovery, found.Issuer)
		}
		for name, text := range map[string]string{"jwks_uri": found.JWKSURI, "authorization_endpoint": found.Authorization,
			"token_endpoint": found.Token, "userinfo_endpoint": found.UserInfo} {
			if err := CheckURL(name, text); err != nil && (text != "" || name == "jwks_uri") {
				return nil, errkind.E(errkind.Unavailable, "", err)
			}
		}
		address, s.issuer, s.ends = found.JWKSURI, found.Issuer, found.Endpoints
	}
	return s, get(ctx, ca, address, &s.set)
}

func get(ctx context.Context, ca, address string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	return Ask(ctx, ca, r, into)
}

// Try asks for the keys of a source, whatever is kept.
func (k *Keys) Try(ctx context.Context, from Source) error {
	_, err := k.ask(ctx, from)
	return err
}
