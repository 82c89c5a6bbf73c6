package database

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"text/template"
	tree "text/template/parse"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/safetemplate"
)

// unfit are characters that cannot stand in statements (see values.expand), nor "/" in a key of the storage.
const unfit = "\"'\\;\x00\r\n"

// nameBytes is how long PostgreSQL lets a name be.
const nameBytes = 63

// naming makes names of roles by a template, in the language of Vault's username_template.
type naming struct {
	t    *safetemplate.Template
	most int // bytes of a name
}

// parseNaming reads a template. What could go on for ever (range, templates in templates) is refused, and what its
// functions make of each other is bounded.
func parseNaming(text string, now time.Time, longest int) (*naming, error) {
	t, err := safetemplate.Parse("username_template", text,
		func(b *safetemplate.Budget) template.FuncMap { return nameFunctions(b, now) }, safetemplate.Limits{})
	if err != nil {
		return nil, err
	}
	for _, node := range t.Root().Nodes {
		switch node.(type) {
		case *tree.TextNode, *tree.ActionNode, *tree.CommentNode:
		default:
			return nil, fmt.Errorf("%s: only {{ }} with values and functions may stand in it", node)
		}
	}
	return &naming{t, longest}, nil
}

// nameFunctions are what a template may call; each pays for what it makes.
func nameFunctions(b *safetemplate.Budget, now time.Time) template.FuncMap {
	return template.FuncMap{
		"random": func(count int) (string, error) {
			if count < 1 || count > nameBytes {
				return "", fmt.Errorf("random: must be 1 to %d", nameBytes)
			}
			return text(count, letters), nil
		},
		"truncate": truncate, "truncate_sha256": truncateHashed,
		"uppercase": func(s string) (string, error) { return strings.ToUpper(s), b.Spend(2 * len(s)) },
		"lowercase": func(s string) (string, error) { return strings.ToLower(s), b.Spend(2 * len(s)) },
		"replace": func(find, put, s string) (string, error) {
			if err := b.Spend(len(s) + (len(s)+1)*len(put)); err != nil {
				return "", err
			}
			return strings.ReplaceAll(s, find, put), nil
		},
		"sha256": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
		"base64": func(s string) (string, error) {
			return base64.StdEncoding.EncodeToString([]byte(s)), b.Spend(2 * len(s))
		},
		"uuid":             uuid.NewString,
		"unix_time":        func() string { return fmt.Sprint(now.Unix()) },
		"unix_time_millis": func() string { return fmt.Sprint(now.UnixMilli()) },
		"timestamp": func(format string) (string, error) {
			return now.UTC().Format(format), b.Spend(8 * len(format))
		},
	}
}

// make makes a name for who asks (holder) by which role.
func (n *naming) make(holder, role string) (string, error) {
	name, err := n.t.Execute(map[string]string{"DisplayName": holder, "RoleName": role}, true)
	if err != nil {
		return "", err
	}
	switch {
	case name == "" || len(name) > n.most:
		return "", fmt.Errorf("it makes %.100q, of %d bytes: a name has 1 to %d", name, len(name), n.most)
	case strings.ContainsAny(name, unfit+"/"):
		return "", fmt.Errorf("it makes %q: quotes, slashes, backslashes, semicolons and line ends cannot stand in a name",
			name)
	}
	return name, nil
}

func truncate(n int, s string) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("truncate: must be above 0")
	}
	return s[:min(n, len(s))], nil
}

// truncateHashed keeps what was cut off in a hash of eight characters at the end.
func truncateHashed(n int, s string) (string, error) {
	if n < 9 {
		return "", fmt.Errorf("truncate_sha256: must be above 8")
	}
	if len(s) <= n {
		return s, nil
	}
	sum := sha256.Sum256([]byte(s))
	return s[:n-8] + hex.EncodeToString(sum[:])[:8], nil
}

// userName is a new role's name.
func (c *call) userName(cfg *config) (string, error) {
	if cfg.Template == "" {
		return newUser(c.r.Holder, c.name, c.r.Now, cfg.kind().longest()), nil
	}
	n, err := parseNaming(cfg.Template, c.r.Now, cfg.kind().longest())
	if err != nil {
		return "", invalid("field \"username_template\": %v", err)
	}
	name, err := n.make(c.r.Holder, c.name)
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
