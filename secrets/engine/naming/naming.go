// Package naming makes names of users and objects that engines make elsewhere, by templates in the language of
// Vault's username_template. Pure, but for what it draws.
package naming

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"text/template"
	tree "text/template/parse"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/safetemplate"
)

// Letters are those of names and passwords that need no quotes anywhere.
const Letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// randomMost bounds a call of random.
const randomMost = 63

// Draw draws a text of n of the characters.
func Draw(n int, from string) string {
	out, most := make([]byte, n), big.NewInt(int64(len(from)))
	for i := range out {
		k, err := rand.Int(rand.Reader, most)
		if err != nil {
			panic(err) // crypto/rand does not fail
		}
		out[i] = from[k.Int64()]
	}
	return string(out)
}

// Plain leaves of a name what needs no quotes anywhere.
func Plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (strings.ContainsRune(Letters, r) || r == '-' || r == '_' || r == '.') {
			return r
		}
		return '-'
	}, name)
}

// Rules bound what a template makes.
type Rules struct {
	Most  int    // bytes
	Unfit string // characters that cannot stand in it
}

// Template is one.
type Template struct {
	t *safetemplate.Template
}

// Parse reads a template. What could go on for ever (range, templates in templates) is refused, and what its
// functions make of each other is bounded. more are functions beside those of names.
func Parse(field, text string, now time.Time, more template.FuncMap) (*Template, error) {
	t, err := safetemplate.Parse(field, text, func(b *safetemplate.Budget) template.FuncMap {
		all := functions(b, now)
		maps.Copy(all, more)
		return all
	}, safetemplate.Limits{})
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
	return &Template{t}, nil
}

// functions are what a template may call; each pays for what it makes.
func functions(b *safetemplate.Budget, now time.Time) template.FuncMap {
	return template.FuncMap{
		"random": func(count int) (string, error) {
			if count < 1 || count > randomMost {
				return "", fmt.Errorf("random: must be 1 to %d", randomMost)
			}
			return Draw(count, Letters), nil
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

// Text fills the template in. What data lacks is an error.
func (t *Template) Text(data map[string]string) (string, error) { return t.t.Execute(data, true) }

// Make makes a name for who asks (holder) by which role.
func (t *Template) Make(holder, role string, rules Rules) (string, error) {
	name, err := t.Text(map[string]string{"DisplayName": holder, "RoleName": role})
	if err != nil {
		return "", err
	}
	switch {
	case name == "" || len(name) > rules.Most:
		return "", fmt.Errorf("it makes %.100q, of %d bytes: a name has 1 to %d", name, len(name), rules.Most)
	case strings.ContainsAny(name, rules.Unfit):
		return "", fmt.Errorf("it makes %q, with a character that cannot stand in a name (%q)", name, rules.Unfit)
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
