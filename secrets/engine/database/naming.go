package database

import (
	"strings"

	"corbel.dev/corbel/secrets/engine/naming"
)

// unfit are characters that cannot stand in statements (see values.expand), nor "/" in a key of the storage.
const unfit = "\"'\\;\x00\r\n"

// nameBytes is how long PostgreSQL lets a name be.
const nameBytes = 63

// userName is a new role's name.
func (c *call) userName(cfg *config) (string, error) {
	if cfg.Template == "" {
		return newUser(c.r.Holder, c.name, c.r.Now, cfg.kind().longest()), nil
	}
	t, err := naming.Parse("username_template", cfg.Template, c.r.Now, nil)
	if err != nil {
		return "", invalid("field \"username_template\": %v", err)
	}
	name, err := t.Make(c.r.Holder, c.name, naming.Rules{Most: cfg.kind().longest(), Unfit: unfit + "/"})
	if err != nil {
		return "", invalid("field \"username_template\": %v", err)
	}
	return name, nil
}

// passwordTries is how often a policy is asked for a password that can stand in statements.
const passwordTries = 100

// password is a new one, by the configuration's policy.
func (c *call) password(cfg *config) (string, error) {
	if cfg.Policy == "" {
		return newPassword(), nil
	}
	if c.e.Password == nil {
		return "", invalid("field \"password_policy\": there are no password policies here")
	}
	for range passwordTries {
		word, err := c.e.Password(c, cfg.Policy)
		if err != nil {
			return "", err
		}
		if !strings.ContainsAny(word, unfit) {
			return word, nil
		}
	}
	return "", invalid("field \"password_policy\": %s makes passwords with quotes, backslashes or semicolons, which "+
		"cannot stand in statements", cfg.Policy)
}

// fits finds out whether names and passwords can be made.
func (c *call) fits(cfg *config) error {
	if _, err := c.password(cfg); err != nil {
		return err
	}
	_, err := (&call{Context: c.Context, e: c.e, view: c.view, r: c.r, name: "role"}).userName(cfg)
	return err
}
