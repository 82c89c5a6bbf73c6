package keeper

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/policy"
	"corbel.dev/corbel/secrets/storage"
)

// maxRandomBytes bounds what tools/random gives at once.
const maxRandomBytes = 128 << 10

// random gives random bytes: the path may name a source, which is one here, and how many.
func (s *system) random(c *sysCall) (any, error) {
	n := c.f.Int("bytes", 32)
	for part := range strings.SplitSeq(strings.Trim(c.name, "/"), "/") {
		switch part {
		case "", "platform", "seal", "all":
		default:
			var err error
			if n, err = strconv.Atoi(part); err != nil {
				return nil, errkind.Errorf(errkind.Invalid, "error parsing url-set byte count: %q is neither a number nor a source (platform, seal, all)", part)
			}
		}
	}
	format := c.f.String("format")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if n < 1 || n > maxRandomBytes {
		return nil, errkind.Errorf(errkind.Invalid, "field \"bytes\": must be from 1 to %d", maxRandomBytes)
	}
	text, err := formatted(random(n), format, "base64")
	return map[string]any{"random_bytes": text}, err
}

func formatted(b []byte, format, def string) (string, error) {
	if format == "" {
		format = def
	}
	switch format {
	case "base64":
		return base64.StdEncoding.EncodeToString(b), nil
	case "hex":
		return hex.EncodeToString(b), nil
	}
	return "", errkind.Errorf(errkind.Invalid, "unsupported encoding format %q; must be \"hex\" or \"base64\"", format)
}

// hashes are the algorithms of tools/hash.
var hashes = map[string]func() hash.Hash{
	"sha2-224": sha256.New224, "sha2-256": sha256.New, "sha2-384": sha512.New384, "sha2-512": sha512.New,
	"sha3-224": func() hash.Hash { return sha3.New224() }, "sha3-256": func() hash.Hash { return sha3.New256() },
	"sha3-384": func() hash.Hash { return sha3.New384() }, "sha3-512": func() hash.Hash { return sha3.New512() },
}

func (s *system) hash(c *sysCall) (any, error) {
	name := strings.Trim(c.name, "/")
	if name == "" {
		name = c.f.String("algorithm")
	}
	if name == "" {
		name = "sha2-256"
	}
	text, format := c.f.String("input"), c.f.String("format")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	algorithm := hashes[name]
	if algorithm == nil {
		return nil, errkind.Errorf(errkind.Invalid, "unsupported algorithm %q", name)
	}
	input, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "unable to decode input as base64: %w", err)
	}
	h := algorithm()
	h.Write(input)
	sum, err := formatted(h.Sum(nil), format, "hex")
	return map[string]any{"sum": sum}, err
}

// resultantACL is what the caller's policies allow, for user interfaces.
func (s *system) resultantACL(c *sysCall) (any, error) {
	l := c.Bearer.ACL.List()
	shown := func(m map[string][]string) map[string]any {
		out := map[string]any{}
		for path, words := range m {
			out[path] = map[string]any{"capabilities": words}
		}
		return out
	}
	return map[string]any{"root": l.Root, "exact_paths": shown(l.Exact), "glob_paths": shown(l.Globs), "chroot_namespace": ""}, nil
}

// passwordPrefix is where password policies are.
const passwordPrefix = "core/password-policies/"

func (c *sysCall) passwordKey() (string, error) {
	key := passwordPrefix + c.name
	if err := storage.CheckKey(key); err != nil || strings.Contains(c.name, "/") {
		return "", errkind.New(errkind.Invalid, "the name of a password policy is one word")
	}
	return key, nil
}

func (s *system) passwordNames(c *sysCall) (any, error) {
	names, err := s.k.records.List(c, passwordPrefix, "", 0)
	if err == nil && len(names) == 0 {
		err = errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": names}, err
}

// passwordBy draws a password by a named policy, for engines.
func (k *Keeper) passwordBy(ctx context.Context, name string) (string, error) {
	raw, ok, err := k.records.Get(ctx, passwordPrefix+name)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", errkind.Errorf(errkind.Invalid, "password policy %q is not there: see sys/policies/password", name)
	}
	p, err := policy.ParsePasswords(string(raw))
	if err != nil {
		return "", errkind.Errorf(errkind.Corrupt, "the password policy %s cannot be read: %w", name, err)
	}
	return p.Generate(rand.Reader)
}

func (s *system) passwordText(c *sysCall, key string) (string, error) {
	raw, ok, err := s.k.records.Get(c, key)
	if err == nil && !ok {
		err = errkind.New(errkind.NotFound, "")
	}
	return string(raw), err
}

// readPassword reads a policy, or draws a password by it.
func (s *system) readPassword(c *sysCall) (any, error) {
	name, generate := strings.CutSuffix(c.name, "/generate")
	c.name = name
	key, err := c.passwordKey()
	if err != nil {
		return nil, err
	}
	text, err := s.passwordText(c, key)
	if err != nil || !generate {
		return map[string]any{"policy": text}, err
	}
	p, err := policy.ParsePasswords(text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the password policy %s cannot be read: %w", name, err)
	}
	word, err := p.Generate(rand.Reader)
	return map[string]any{"password": word}, err
}

func (s *system) writePassword(c *sysCall) (any, error) {
	key, err := c.passwordKey()
	if err != nil {
		return nil, err
	}
	text := c.f.String("policy")
	if err := c.f.Err(); err != nil {
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
	return nil, s.k.records.Commit(c, []storage.Op{storage.Put(key, []byte(text))})
}

func (s *system) deletePassword(c *sysCall) (any, error) {
	key, err := c.passwordKey()
	if err != nil {
		return nil, err
	}
	return nil, s.k.records.Commit(c, []storage.Op{storage.Delete(key)})
}

// lockedUsers lists who is locked out of logins, by mount.
func (s *system) lockedUsers(c *sysCall) (any, error) {
	want := c.f.String("mount_accessor")
	type mounted struct {
		Accessor string   `json:"mount_accessor"`
		Counts   int      `json:"counts"`
		Aliases  []string `json:"alias_identifiers"`
	}
	list, total := []mounted{}, 0
	for _, e := range c.Tables.Mounts.All() {
		rules := s.k.lockoutRules(e)
		if names := s.k.lockout.Names(&rules, e.UUID, c.Now); len(names) > 0 && (want == "" || want == e.Accessor) {
			list = append(list, mounted{e.Accessor, len(names), names})
			total += len(names)
		}
	}
	return map[string]any{"total": total, "by_namespace": []any{map[string]any{"namespace_id": "root", "namespace_path": "", "counts": total, "mount_accessors": list}}}, nil
}

// unlockUser lets an alias try again: sys/locked-users/ACCESSOR/unlock/ALIAS.
func (s *system) unlockUser(c *sysCall) (any, error) {
	accessor, rest, _ := strings.Cut(c.name, "/")
	alias, ok := strings.CutPrefix(rest, "unlock/")
	if !ok {
		return nil, errkind.New(errkind.NotFound, "unsupported path")
	}
	for _, e := range c.Tables.Mounts.All() {
		if e.Accessor == accessor {
			s.k.lockout.Unlock(e.UUID, strings.ToLower(alias))
			s.k.lockout.Unlock(e.UUID, alias)
			return nil, nil
		}
	}
	return nil, errkind.Errorf(errkind.Invalid, "there is no mount with the accessor %q", accessor)
}

// tidyLeases is there for operators' scripts: nothing is left behind that it would have to look for.
func (s *system) tidyLeases(*sysCall) (any, error) {
	return tidied(), nil
}

func tidied() *secrets.Response {
	return &secrets.Response{Status: http.StatusAccepted, Warnings: []string{"Tidy operation successfully started. Any information from the operation will be printed to Vault's server logs."}}
}

// replication says that there is none, under the names of Vault's other editions.
func (s *system) replication(c *sysCall) (any, error) {
	off := map[string]any{"mode": "disabled"}
	switch c.name {
	case "status":
		return map[string]any{"dr": off, "performance": off}, nil
	case "dr/status", "performance/status":
		return off, nil
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

// versionPrefix is where the versions are that this store was used by, each with when it came first.
const versionPrefix = "core/versions/"

type versionRecord struct {
	At       time.Time `json:"timestamp_installed"`
	Built    string    `json:"build_date"`
	Previous string    `json:"previous_version"`
}

// noteVersion writes down that this version uses the store, when it does so for the first time.
func (k *Keeper) noteVersion(ctx context.Context) (int, error) {
	name := k.cfg.Local.Version
	if name == "" || k.Sealed() || k.versionNoted.Load() {
		return 0, nil
	}
	records, err := k.records.Scan(ctx, versionPrefix, storage.After(versionPrefix), 0)
	if err != nil {
		return 0, err
	}
	next, newest := versionRecord{At: k.cfg.Now().UTC(), Built: version.Of().Date}, time.Time{}
	for _, r := range records {
		var v versionRecord
		if json.Unmarshal(r.Value, &v) == nil && !v.At.Before(newest) {
			newest, next.Previous = v.At, r.Key[len(versionPrefix):]
		}
		if r.Key == versionPrefix+name {
			k.versionNoted.Store(true)
			return 0, nil
		}
	}
	op, err := storage.PutJSON(versionPrefix+name, next)
	if err == nil {
		err = k.records.Commit(ctx, []storage.Op{op})
	}
	k.versionNoted.Store(err == nil)
	return 1, err
}

func (s *system) versionHistory(c *sysCall) (any, error) {
	records, err := s.k.records.Scan(c, versionPrefix, storage.After(versionPrefix), 0)
	if err != nil {
		return nil, err
	}
	keys, info := []string{}, map[string]any{}
	for _, r := range records {
		var v versionRecord
		if json.Unmarshal(r.Value, &v) != nil {
			return nil, errkind.Errorf(errkind.Corrupt, "%s is not what was stored", r.Key)
		}
		name := r.Key[len(versionPrefix):]
		keys = append(keys, name)
		info[name] = v
	}
	if len(keys) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": keys, "key_info": info}, nil
}

func (s *system) inFlightRequests(*sysCall) (any, error) { return s.k.flying.Show(), nil }
