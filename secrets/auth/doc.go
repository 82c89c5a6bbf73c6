// Package auth is what the auth methods share: the token_* parameters of their
// roles, address blocks, and the count of failures that locks an alias out. The
// methods are packages below it; each is an engine whose logins answer with
// secrets.Auth, of which the keeper makes the token in the login's own commit.
package auth
