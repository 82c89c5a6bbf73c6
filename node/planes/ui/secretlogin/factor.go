package secretlogin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/planes/ui/planeasker"
)

// loggedIn is the answer of a login of the secrets plane: a token, or what is lacking for one.
type loggedIn struct {
	Auth struct {
		Token  string  `json:"client_token"`
		Factor *factor `json:"mfa_requirement"`
	} `json:"auth"`
}

// factor is a login that waits for its second factor: for each enforcement a passcode of one of its methods.
type factor struct {
	ID          string `json:"mfa_request_id"`
	Constraints map[string]struct {
		Any []struct {
			ID       string `json:"id"`
			Name     string `json:"name"`
			Passcode bool   `json:"uses_passcode"`
		} `json:"any"`
	} `json:"mfa_constraints"`
}

// enter completes a person who logs in with the token of the answer, or fails with what is lacking, as a *uiapi.Due; by
// is who that is, "" where the login does not tell.
func (l *loggedIn) enter(ctx context.Context, a *planeasker.Asker, by string, p uiapi.Person) (uiapi.Person, error) {
	switch {
	case l.Auth.Token != "":
		p.Made = true
		if p.Name != "" {
			p.Secrets = l.Auth.Token
			return p, nil
		}
		err := ByToken(ctx, a, l.Auth.Token, &p)
		return p, err
	case l.Auth.Factor == nil:
		return p, errkind.New(errkind.Denied, "the login gave no token")
	}
	id := l.Auth.Factor.ID
	due := &uiapi.Due{Who: by, Asks: l.Auth.Factor.asks()}
	due.End = func(r *http.Request, codes map[string]string) (uiapi.Person, error) {
		payload := map[string][]string{}
		for method, code := range codes {
			payload[method] = []string{strings.TrimSpace(code)}
		}
		who := p
		who.Remote = r.RemoteAddr
		var next loggedIn
		err := patient(a).Send(r.Context(), &uiapi.Person{Remote: who.Remote}, http.MethodPost, "secrets",
			"/v1/sys/mfa/validate", map[string]any{"mfa_request_id": id, "mfa_payload": payload}, &next)
		if err != nil && strings.Contains(err.Error(), "mfa_request_id") { // nothing else can be wrong with it
			err = uiapi.ErrOver
		}
		if err != nil {
			return who, err
		}
		return next.enter(r.Context(), a, by, who)
	}
	return p, due
}

// asks are what a person is asked for: a passcode that satisfies two enforcements is asked for once.
func (f *factor) asks() (out []uiapi.Ask) {
	for _, name := range slices.Sorted(maps.Keys(f.Constraints)) {
		ask := uiapi.Ask{Name: name, Methods: []uiapi.Method{}}
		for _, m := range f.Constraints[name].Any {
			if m.Passcode {
				ask.Methods = append(ask.Methods, uiapi.Method{ID: m.ID, Name: cmp.Or(m.Name, m.ID)})
			}
		}
		out = append(out, ask)
	}
	within := func(a, b uiapi.Ask) bool {
		return len(a.Methods) > 0 && !slices.ContainsFunc(a.Methods, func(m uiapi.Method) bool {
			return !slices.Contains(b.Methods, m)
		})
	}
	// Whatever satisfies the narrower one satisfies the wider one too; of two alike the first stays.
	all := slices.Clone(out)
	return slices.DeleteFunc(out, func(wide uiapi.Ask) bool {
		return slices.ContainsFunc(all, func(narrow uiapi.Ask) bool {
			return narrow.Name != wide.Name && within(narrow, wide) && (!within(wide, narrow) || narrow.Name < wide.Name)
		})
	})
}
