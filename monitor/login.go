package monitor

import (
	"errors"

	"corbel.dev/corbel/kit/tagproto"
)

// Login is what is kept of somebody's session with the API once it was refreshed or ended: no login needs a record.
type Login struct {
	ID string `pb:"1"`
	// Turn is how often the session was refreshed: only the newest refresh token may be used.
	Turn    uint64 `pb:"2"`
	Ended   bool   `pb:"3"`
	Expires int64  `pb:"4"` // Unix seconds: when no token of the session is valid any more
	User    string `pb:"5"`
	Extra   tagproto.Extra
}

// Key returns the session's id.
func (l *Login) Key() (namespace, name string) { return "", l.ID }

// Validate returns what is wrong with the record.
func (l *Login) Validate() error {
	if l.ID == "" || l.User == "" {
		return errors.New("a login has an id and a user")
	}
	return nil
}

// Setting is something that the plane itself remembers, such as the secret that it signs tokens with.
type Setting struct {
	Name  string `pb:"1"`
	Value []byte `pb:"2"`
	Extra tagproto.Extra
}

// Key returns the setting's name.
func (s *Setting) Key() (namespace, name string) { return "", s.Name }

// Validate returns what is wrong with the setting.
func (s *Setting) Validate() error { return ValidateName(s.Name) }
