// Package oidcprovider lets other programs log people in with what identity knows of them: OpenID Connect's
// authorization code flow (OpenID Connect Core 1.0; RFC 6749, RFC 7636) below identity/oidc/.
//
// Providers name the clients that may use them and the scopes that they tell; clients are the other programs;
// assignments are the people who may use a client; scopes are templates of claims. All are records below identity/,
// and each has its default, which is there before anybody wrote it: provider and key "default", assignment "allow_all".
//
// What holds always: a code is good once, for the client that it was made for, within 5 minutes, and where it was made
// with a challenge (PKCE) with its verifier alone. Codes are in the memory of the active server. Access tokens
// are sealed texts that userinfo opens; they are no tokens of the secrets plane. An entity that is disabled or
// went gets nothing more, whatever it holds.
package oidcprovider
