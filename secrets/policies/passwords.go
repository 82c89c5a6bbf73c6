package policies

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
)

// passwordPrefix is where password policies are.
const passwordPrefix = "core/password-policies/"

func passwordKey(c *system.Call) (string, error) {
	key := c.Tables.Key(passwordPrefix + c.Name)
	if err := storage.CheckKey(key); err != nil || strings.Contains(c.Name, "/") {
		return "", errkind.New(errkind.Invalid, "the name of a password policy is one word")
	}
	return key, nil
}

func (p *Policies) passwordNames(c *system.Call) (any, error) {
	names, err := p.Records.List(c, c.Tables.Key(passwordPrefix), "", 0)
	if err == nil && len(names) == 0 {
		err = errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, err
}

// Password draws a password by a named policy of the namespace whose records begin with base, for engines.
func (p *Policies) Password(ctx context.Context, base, name string) (string, error) {
	raw, ok, err := p.Records.Get(ctx, base+passwordPrefix+name)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", errkind.Errorf(errkind.Invalid, "password policy %q is not there: see sys/policies/password", name)
	}
	rules, err := policy.ParsePasswords(string(raw))
	if err != nil {
		return "", errkind.Errorf(errkind.Corrupt, "the password policy %s cannot be read: %w", name, err)
	}
	return rules.Generate(rand.Reader)
}

func (p *Policies) passwordText(c *system.Call, key string) (string, error) {
	raw, ok, err := p.Records.Get(c, key)
	if err == nil && !ok {
		err = errkind.New(errkind.NotFound, "")
	}
	return string(raw), err
}

// readPassword reads a policy, or draws a password by it.
func (p *Policies) readPassword(c *system.Call) (any, error) {
	name, generate := strings.CutSuffix(c.Name, "/generate")
	c.Name = name
	key, err := passwordKey(c)
	if err != nil {
		return nil, err
	}
	text, err := p.passwordText(c, key)
	if err != nil || !generate {
		return map[string]any{"policy": text}, err
	}
	rules, err := policy.ParsePasswords(text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the password policy %s cannot be read: %w", name, err)
	}
	word, err := rules.Generate(rand.Reader)
	return map[string]any{"password": word}, err
}

func (p *Policies) writePassword(c *system.Call) (any, error) {
	key, err := passwordKey(c)
	if err != nil {
		return nil, err
	}
	text := c.F.String("policy")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errkind.New(errkind.Invalid, "missing policy")
	}
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	if _, err := policy.ParsePasswords(text); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "invalid password policy: %w", err)
	}
	return nil, p.Records.Commit(c, []storage.Op{storage.Put(key, []byte(text))})
}

func (p *Policies) deletePassword(c *system.Call) (any, error) {
	key, err := passwordKey(c)
	if err != nil {
		return nil, err
	}
	return nil, p.Records.Commit(c, []storage.Op{storage.Delete(key)})
}
