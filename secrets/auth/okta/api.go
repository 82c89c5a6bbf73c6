package okta

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
)

const (
	pushWithin = time.Minute // that somebody has to look at their phone
	pushEvery  = time.Second

	groupsWithin = 20 * time.Second // all pages of them
	maxPages     = 50               // each of a megabyte at most
	maxGroups    = 2000
)

var errBadLogin = errkind.New(errkind.Invalid, "okta auth failed: name or password is wrong, or Okta locked the user "+
	"out")

// attempt is one login, or one question about groups.
type attempt struct {
	c                              *config
	origin                         string
	user, password, code, provider string
}

// factor is a second one that a user has.
type factor struct {
	ID       string `json:"id"`
	Type     string `json:"factorType"`
	Provider string `json:"provider"`
}

// stage is where a login of Okta's API stands.
type stage struct {
	State    string `json:"stateToken"`
	Status   string `json:"status"`
	Result   string `json:"factorResult"`
	Embedded struct {
		User struct {
			ID string `json:"id"`
		} `json:"user"`
		Factors []factor `json:"factors"`
	} `json:"_embedded"`
	Code    string `json:"errorCode"`
	Summary string `json:"errorSummary"`
}

// ask sends a question; in nil is a GET with the mount's API token. next is where the rest of a long answer is.
func (t *attempt) ask(ctx context.Context, path string, in, out any) (status int, next string, err error) {
	method, body := http.MethodGet, []byte(nil)
	if in != nil {
		method = http.MethodPost
		if body, err = json.Marshal(in); err != nil {
			return 0, "", err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, t.origin+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", errkind.E(errkind.Invalid, "", err)
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set("Authorization", "SSWS "+t.c.Token)
	}
	a, err := jwks.AskWhole(ctx, "", req)
	if err != nil {
		return 0, "", errkind.Errorf(errkind.Unavailable, "Okta cannot be asked: %s", errkind.Text(err))
	}
	if err := json.Unmarshal(a.Body, out); err != nil && a.Status/100 == 2 {
		return a.Status, "", errkind.New(errkind.Unavailable, "Okta's answer is no JSON as expected")
	}
	if in == nil {
		next, err = t.following(a.Header)
	}
	return a.Status, next, err
}

// following is the path of the page that comes next, "" where there is none. The API token goes to the organization and
// nowhere else, whatever a link says.
func (t *attempt) following(h http.Header) (string, error) {
	for _, line := range h.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(link), ">")
			if !slices.ContainsFunc(strings.Split(params, ";"), func(p string) bool {
				p = strings.ToLower(strings.ReplaceAll(p, " ", ""))
				return p == `rel="next"` || p == "rel=next"
			}) {
				continue
			}
			path, ok := strings.CutPrefix(target, "<"+t.origin)
			if !ok || !strings.HasPrefix(path, "/") {
				return "", errkind.Errorf(errkind.Unavailable, "Okta's answer goes on at another place than %s: look at org_name "+
					"and base_url", t.origin)
			}
			return path, nil
		}
	}
	return "", nil
}

// step is a question of the authentication API.
func (t *attempt) step(ctx context.Context, path string, in any) (*stage, error) {
	s := &stage{}
	status, _, err := t.ask(ctx, path, in, s)
	switch {
	case err != nil:
		return nil, err
	case status/100 == 2:
		return s, nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden && s.Code == "E0000068": // a wrong passcode
		return nil, errBadLogin
	case status == http.StatusTooManyRequests:
		return nil, errkind.New(errkind.Unavailable, "Okta has too many requests of this organization: try again later")
	case status == http.StatusNotFound:
		return nil, errkind.Errorf(errkind.Unavailable, "there is no %s: look at org_name and base_url", t.origin)
	}
	return nil, errkind.Errorf(errkind.Unavailable, "Okta answers %d %s %s", status, s.Code, s.Summary)
}

// verify tells the user's id at Okta. An error of kind Invalid is Okta's no.
func (t *attempt) verify(ctx context.Context) (id string, err error) {
	s, err := t.step(ctx, "/api/v1/authn", map[string]string{"username": t.user, "password": t.password})
	if err != nil {
		return "", err
	}
	id = s.Embedded.User.ID
	switch {
	case s.Status == "SUCCESS":
	case (s.Status == "MFA_REQUIRED" || s.Status == "MFA_ENROLL") && t.c.Bypass:
	case s.Status == "MFA_REQUIRED":
		err = t.second(ctx, s)
	case s.Status == "LOCKED_OUT":
		err = errBadLogin
	default: // PASSWORD_EXPIRED, MFA_ENROLL and the like: the password is right, and Okta wants something first
		err = invalid("okta auth failed: Okta has the user in the state %s: log in at Okta once", s.Status)
	}
	if err == nil && id == "" {
		err = errkind.New(errkind.Unavailable, "Okta's answer names no user")
	}
	return id, err
}

// second has the user's second factor checked: a passcode that came along, or else a push.
func (t *attempt) second(ctx context.Context, s *stage) error {
	kind, hint := "push", "the user has no Okta Verify push: give the passcode as totp"
	if t.code != "" {
		kind, hint = "token:software:totp", "the user has no passcodes enrolled at this provider"
	}
	i := slices.IndexFunc(s.Embedded.Factors, func(f factor) bool {
		return f.Type == kind && (t.provider == "" || f.Provider == t.provider)
	})
	if i < 0 {
		return invalid("okta auth failed: Okta asks for a second factor, and %s", hint)
	}
	path := "/api/v1/authn/factors/" + url.PathEscape(s.Embedded.Factors[i].ID) + "/verify"
	in := map[string]string{"stateToken": s.State}
	if t.code != "" {
		in["passCode"] = t.code
	}
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for {
		now, err := t.step(ctx, path, in)
		switch {
		case ctx.Err() != nil:
			return invalid("okta auth failed: the push was not answered in time")
		case err != nil:
			return err
		case now.Status == "SUCCESS":
			return nil
		case now.Status != "MFA_CHALLENGE" || now.Result != "WAITING":
			return invalid("okta auth failed: the second factor was refused (%s)", strings.ToLower(now.Result))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// groups are the names of a user's groups at Okta, which are told with an API token alone.
func (t *attempt) groups(ctx context.Context, id string) (names []string, err error) {
	if t.c.Token == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, groupsWithin)
	defer cancel()
	path := "/api/v1/users/" + url.PathEscape(id) + "/groups"
	for page := 0; path != ""; page++ {
		var list []struct {
			Profile struct {
				Name string `json:"name"`
			} `json:"profile"`
		}
		status, next, err := t.ask(ctx, path, nil, &list)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			return nil, errkind.New(errkind.Unavailable, "Okta does not tell groups to this api_token: write another to config")
		case status == http.StatusNotFound:
			return nil, errBadLogin
		case status/100 != 2:
			return nil, errkind.Errorf(errkind.Unavailable, "Okta answers %d to the question about groups", status)
		}
		for _, g := range list {
			names = append(names, g.Profile.Name)
		}
		if path = next; len(names) > maxGroups || path != "" && page+1 == maxPages {
			return nil, errkind.Errorf(errkind.Unavailable, "Okta has more than %d groups, or %d pages of them, of this user: "+
				"the policies of a part would be wrong ones", maxGroups, maxPages)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
