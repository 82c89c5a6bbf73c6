package cert

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// crl is a list of revoked certificates, as it was given, or as it was fetched last.
type crl struct {
	Issuer  []byte    `json:"issuer"` // the name as DER
	Serials []string  `json:"serials"`
	Given   time.Time `json:"this_update"`

	URL   string    `json:"url,omitempty"`
	Fetch time.Time `json:"next_fetch,omitzero"`
	Error string    `json:"error,omitempty"` // of the last try; the list of before counts on
}

const (
	listBytes = 16 << 20         // of one list
	askWithin = 5 * time.Second  // of one question to a responder, or for a list
	listEvery = time.Hour        // how often a list is fetched that says nothing of its next, and at most so seldom
	listAgain = time.Minute      // after a try that failed, and at most so often
	listsLook = 15 * time.Second // how often lists are looked through
)

// lists answers requests for lists of revoked certificates.
func (e *Engine) lists(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response,
	error) {
	if r.Op != secrets.Create && r.Op != secrets.Update {
		return auth.Crud(ctx, view, r, crls, name, &crl{})
	}
	if name == "" {
		return nil, auth.ErrUnsupported
	}
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	if r.Due {
		return e.refetch(ctx, view, r, name)
	}
	l := &crl{URL: f.String("url")}
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case l.URL == "":
		return auth.Crud(ctx, view, r, crls, name, l)
	case f.String("crl") != "":
		return nil, errkind.New(errkind.Invalid, "fields \"crl\" and \"url\": give one of them")
	}
	if err := jwks.CheckURL("url", l.URL); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if err := l.fetch(ctx, view, r.Now); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "field \"url\": %w", err)
	}
	return auth.Keep(crls+name, l)
}

// refetch fetches a list whose time has come. One that cannot be had stays as it was, and is tried again.
func (e *Engine) refetch(ctx context.Context, view engine.View, r *secrets.Request, name string) (*secrets.Response,
	error) {
	l, err := auth.Find[crl](ctx, view, crls, name)
	if err != nil {
		return nil, err
	}
	if l == nil || l.URL == "" || r.Now.Before(l.Fetch) { // it went, or was fetched meanwhile
		return &secrets.Response{}, nil
	}
	next := *l
	if err := next.fetch(ctx, view, r.Now); err != nil {
		next = *l
		next.Error, next.Fetch = errkind.Text(err), r.Now.Add(listAgain)
	}
	return auth.Keep(crls+name, &next)
}

// Due implements engine.Tender: lists that are to be fetched.
func (e *Engine) Due(ctx context.Context, view engine.View, now time.Time) (out []*secrets.Request, err error) {
	if now.UnixNano() < e.quiet.Load() {
		return nil, nil
	}
	names, err := view.List(ctx, crls, "", 0)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, ok, err := view.Get(ctx, crls+name)
		if err != nil {
			return nil, err
		}
		var l struct {
			URL   string    `json:"url"`
			Fetch time.Time `json:"next_fetch"`
		}
		if ok && json.Unmarshal(raw, &l) == nil && l.URL != "" && !now.Before(l.Fetch) {
			out = append(out, &secrets.Request{Op: secrets.Update, Rest: crls + name})
		}
	}
	if len(out) == 0 {
		e.quiet.Store(now.Add(listsLook).UnixNano())
	}
	return out, nil
}

// fetch fetches the list, which one of the roles' authorities must have signed: nobody on the way empties or fills it.
func (l *crl) fetch(ctx context.Context, view engine.View, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, nil)
	if err != nil {
		return errkind.E(errkind.Invalid, "", err)
	}
	body, err := asked(q, listBytes)
	if err != nil {
		return err
	}
	list, err := parseList(body)
	if err != nil {
		return err
	}
	signed, err := signedByRole(ctx, view, list)
	if err != nil {
		return err
	}
	if !signed {
		return errkind.New(errkind.Invalid, "the list is signed by no authority of the roles in certs/: write the role first")
	}
	if list.ThisUpdate.Before(l.Given) {
		return errkind.New(errkind.Invalid, "the list is older than the one that is kept")
	}
	url := l.URL
	l.take(list)
	l.URL, l.Fetch = url, now.Add(listEvery)
	if at := list.NextUpdate; !at.IsZero() && at.Before(l.Fetch) {
		l.Fetch = at
	}
	if soonest := now.Add(listAgain); l.Fetch.Before(soonest) {
		l.Fetch = soonest
	}
	return nil
}

// asked sends a question of a certificate's standing, and gives the answer's bytes. Redirects are not followed.
func asked(q *http.Request, most int64) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(q)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "ask "+q.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end or given up
	if res.StatusCode != http.StatusOK {
		return nil, errkind.Errorf(errkind.Unavailable, "%s answered %s", q.URL.Host, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "read the answer of "+q.URL.Host, err)
	}
	if int64(len(body)) > most {
		return nil, errkind.Errorf(errkind.Unavailable, "%s answered with more than %d bytes", q.URL.Host, most)
	}
	return body, nil
}

func parseList(text []byte) (*x509.RevocationList, error) {
	der := text
	if block, _ := pem.Decode(der); block != nil {
		der = block.Bytes
	} else if raw, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
		der = raw
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "must be a list of revoked certificates, PEM or DER: %w", err)
	}
	return list, nil
}

func signedByRole(ctx context.Context, view engine.View, list *x509.RevocationList) (bool, error) {
	names, err := view.List(ctx, certs, "", 0)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		r, err := auth.Find[role](ctx, view, certs, name)
		if err != nil {
			return false, err
		}
		if r == nil {
			continue
		}
		trusted, err := r.authorities()
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return list.CheckSignatureFrom(c) == nil }) {
			return true, nil
		}
	}
	return false, nil
}

// take keeps what a list says.
func (l *crl) take(list *x509.RevocationList) {
	*l = crl{Issuer: list.RawIssuer, Given: list.ThisUpdate}
	for _, e := range list.RevokedCertificateEntries {
		l.Serials = append(l.Serials, e.SerialNumber.String())
	}
	slices.Sort(l.Serials)
}

// Read implements auth.Record.
func (l *crl) Read(f *secrets.Fields) error {
	text := f.String("crl")
	if err := f.Err(); err != nil {
		return err
	}
	list, err := parseList([]byte(text))
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "field \"crl\": %w", err)
	}
	l.take(list)
	return nil
}

// Show implements auth.Record.
func (l *crl) Show() map[string]any {
	serials := map[string]any{}
	for _, s := range l.Serials {
		serials[s] = map[string]any{}
	}
	out := map[string]any{"serials": serials, "this_update": l.Given.Format(time.RFC3339)}
	if l.URL != "" {
		out["cdp"] = map[string]any{"url": l.URL, "valid_until": l.Fetch.Format(time.RFC3339), "error": l.Error}
	}
	return out
}

func (l *crl) has(issuer []byte, serial *big.Int) bool {
	_, ok := slices.BinarySearch(l.Serials, serial.String())
	return ok && slices.Equal(l.Issuer, issuer)
}

// unrevoked leaves those chains that no list has a certificate of.
func unrevoked(ctx context.Context, view engine.View, chains [][]*x509.Certificate) ([][]*x509.Certificate, error) {
	names, err := view.List(ctx, crls, "", 0)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		l, err := auth.Find[crl](ctx, view, crls, name)
		if err != nil {
			return nil, err
		}
		chains = slices.DeleteFunc(chains, func(chain []*x509.Certificate) bool {
			return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
				return l != nil && l.has(c.RawIssuer, c.SerialNumber)
			})
		})
	}
	return chains, nil
}
