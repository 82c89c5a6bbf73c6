package accessrows

import (
	"net/http"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
)

// A person logs in with a browser: the client asks where to send it (auth-url), and brings what it came back with
// (complete-auth). The catalog keeps the login meanwhile.

func browserURL(q *request) error {
	in, err := nomadrows.Decode[struct{ AuthMethodName, RedirectURI, ClientNonce string }](q)
	if err != nil {
		return err
	}
	switch {
	case in.AuthMethodName == "":
		return nomadrows.BadRequest("missing auth method name")
	case in.RedirectURI == "":
		return nomadrows.BadRequest("missing redirect URI")
	case in.ClientNonce == "":
		return nomadrows.BadRequest("missing client nonce")
	}
	var out struct{ AuthURL string }
	_, err = ask(q, http.MethodPost, "oidc/auth-url", nil, struct{ AuthMethod, RedirectURI, ClientNonce string }{
		in.AuthMethodName, in.RedirectURI, in.ClientNonce}, &out)
	if err != nil {
		return told(err)
	}
	return q.JSON(out)
}

// browserBack trades what a browser came back with for a token. Where it came back to is what the login began with,
// whatever the client says now.
func browserBack(q *request) error {
	in, err := nomadrows.Decode[struct{ AuthMethodName, ClientNonce, State, Code, RedirectURI, Iss string }](q)
	if err != nil {
		return err
	}
	switch {
	case in.AuthMethodName == "":
		return nomadrows.BadRequest("missing auth method name")
	case in.State == "":
		return nomadrows.BadRequest("missing state")
	case in.Code == "":
		return nomadrows.BadRequest("missing code")
	}
	var made stored
	_, err = ask(q, http.MethodPost, "oidc/callback", nil, struct{ AuthMethod, State, Code, ClientNonce string }{
		in.AuthMethodName, in.State, in.Code, in.ClientNonce}, &made)
	return replied(q, &made, err)
}
