package transit

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// changes are the paths "keys/<key>/<what>".
var changes = map[string]handler{
	"config": by(keyring.configure), "rotate": by(keyring.rotate), "trim": by(keyring.trim), "import": by(imports.key),
	"import_version": by(imports.version),
	"csr":            by(certificates.csr), "set-certificate": by(certificates.set), "soft-delete": by(keyring.softDelete),
	"soft-delete-restore": by(keyring.softRestore),
}

// newKey reads what a key is to be, without a version.
func newKey(name string, f *secrets.Fields) (*key, error) {
	k := &key{Name: name, Type: f.String("type"), Derived: f.Bool("derived", false),
		Convergent: f.Bool("convergent_encryption", false),
		exits:      exits{Exportable: f.Bool("exportable", false), PlainBackup: f.Bool("allow_plaintext_backup", false)},
		Size:       f.Int("key_size", 0), Every: f.Duration("auto_rotate_period", 0)}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if k.Type == "" {
		k.Type = "aes256-gcm96"
	}
	fam, ok := families[k.Type]
	switch {
	case !ok:
		return nil, invalid("unknown key type %q", k.Type)
	case k.Convergent && !k.Derived:
		return nil, invalid("convergent encryption requires derivation to be enabled, so per-request context is provided")
	case k.Derived && !fam.derives:
		return nil, invalid("key derivation not supported for keys of type %s", k.Type)
	case k.Convergent && !fam.encrypts:
		return nil, invalid("convergent encryption not supported for keys of type %s", k.Type)
	case fam.hmacOnly && (k.Size != 0 && (k.Size < 32 || k.Size > 512)):
		return nil, invalid("invalid key_size %d: must be 32 to 512 bytes", k.Size)
	case !fam.hmacOnly && k.Size != 0:
		return nil, invalid("key_size is for keys of type hmac alone")
	}
	if fam.hmacOnly && k.Size == 0 {
		k.Size = 32
	}
	return k, checkPeriod(k.Every)
}

func checkPeriod(d time.Duration) error {
	if d != 0 && d < time.Hour {
		return invalid("auto rotate period must be 0 to disable or at least an hour")
	}
	return nil
}

func (c keyring) list() (*secrets.Response, error) {
	after, limit := c.f.String("after"), max(c.f.Int("limit", 0), 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	names, err := c.view.List(c, "key/", after, limit)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNotFound
	}
	return answer(map[string]any{"keys": names})
}

func (k *key) answer() (*secrets.Response, error) {
	out, err := k.show()
	if err != nil {
		return nil, err
	}
	return answer(out)
}

func (c keyring) create() (*secrets.Response, error) {
	k, err := c.find(c.name)
	if err != nil {
		return nil, err
	}
	if k != nil {
		resp, err := k.answer()
		if err == nil {
			resp.Warnings = []string{"key " + c.name + " already existed"}
		}
		return resp, err
	}
	if k, err = newKey(c.name, c.f); err != nil {
		return nil, err
	}
	if k.Every > 0 {
		k.Next = c.r.Now.UTC().Add(k.Every)
	}
	if k, err = c.bear(k); err != nil {
		return nil, err
	}
	if err := c.save(k, time.Time{}); err != nil {
		return nil, err
	}
	return k.answer()
}

func (c keyring) read() (*secrets.Response, error) {
	k, err := c.find(c.name)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errNotFound
	}
	return k.answer()
}

func (c keyring) delete() (*secrets.Response, error) {
	k, err := c.find(c.name)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, invalid("could not delete key; not found")
	case !k.Deletable:
		return nil, invalid("error deleting key %s: deletion is not allowed for this key", c.name)
	}
	c.e.forget(c.name)
	c.ops = append(c.ops, storage.Delete("key/"+c.name))
	if !k.Next.IsZero() {
		c.ops = append(c.ops, storage.Delete(rotateKey(k.Next, k.Name)))
	}
	return &secrets.Response{}, nil
}

// changing is a copy of the key, to be changed and saved.
func (c keyring) changing() (*key, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	c.e.forget(c.name) // it is stored: what comes after it goes from there
	own := *k
	own.Versions = maps.Clone(k.Versions)
	return &own, nil
}

func (c keyring) configure() (*secrets.Response, error) {
	k, err := c.changing()
	if err != nil {
		return nil, err
	}
	was := k.Next
	k.MinDecrypt, k.MinEncrypt = c.f.Int("min_decryption_version", k.MinDecrypt),
		c.f.Int("min_encryption_version", k.MinEncrypt)
	k.Deletable = c.f.Bool("deletion_allowed", k.Deletable)
	if c.f.Bool("exportable", k.Exportable) != k.Exportable ||
		c.f.Bool("allow_plaintext_backup", k.PlainBackup) != k.PlainBackup {
		if (k.Exportable && !c.f.Bool("exportable", true)) || (k.PlainBackup && !c.f.Bool("allow_plaintext_backup", true)) {
			return nil, invalid("exportable and allow_plaintext_backup cannot be taken back once they were set")
		}
		k.Exportable, k.PlainBackup = c.f.Bool("exportable", k.Exportable), c.f.Bool("allow_plaintext_backup", k.PlainBackup)
	}
	if c.f.Has("auto_rotate_period") {
		k.Every = c.f.Duration("auto_rotate_period", 0)
		if err := checkPeriod(k.Every); err != nil {
			return nil, err
		}
		if k.Next = (time.Time{}); k.Every > 0 {
			k.Next = c.r.Now.UTC().Add(k.Every)
		}
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	k.MinDecrypt = max(k.MinDecrypt, 1)
	switch {
	case k.MinDecrypt > k.Latest:
		return nil, invalid("cannot set min decryption version of %d, latest key version is %d", k.MinDecrypt, k.Latest)
	case k.MinDecrypt < k.MinHere:
		return nil, invalid("min decryption version should not be less than min available version")
	case k.MinEncrypt < 0:
		return nil, invalid("min encryption version cannot be negative")
	case k.MinEncrypt > k.Latest:
		return nil, invalid("cannot set min encryption version of %d, latest key version is %d", k.MinEncrypt, k.Latest)
	case k.MinEncrypt > 0 && k.MinEncrypt < k.MinDecrypt:
		return nil, invalid("cannot set min encryption/decryption values; min encryption version of %d must be greater "+
			"than or equal to min decryption version of %d", k.MinEncrypt, k.MinDecrypt)
	}
	if err := c.save(k, was); err != nil {
		return nil, err
	}
	return k.answer()
}

func (c keyring) rotate() (*secrets.Response, error) {
	k, err := c.changing()
	if c.r.Due {
		// it was rotated, or went: its entry is a remnant
		if err == nil && (k.Next.IsZero() || k.Next.After(c.r.Now)) || err == errNoKey {
			c.ops = append(c.ops, storage.Delete(c.f.String("entry")))
			return &secrets.Response{}, c.f.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	if k.Imported && !k.MayRotate {
		return nil, invalid("imported key %s does not allow rotation within Vault", c.name)
	}
	if err := c.newVersion(k); err != nil {
		return nil, err
	}
	k.Imported = false
	was := k.Next
	if k.Every > 0 {
		k.Next = c.r.Now.UTC().Add(k.Every)
	}
	if err := c.save(k, was); err != nil {
		return nil, err
	}
	return k.answer()
}

// trim takes versions away for good.
func (c keyring) trim() (*secrets.Response, error) {
	k, err := c.changing()
	if err != nil {
		return nil, err
	}
	least := c.f.Int("min_available_version", 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case least <= 0:
		return nil, invalid("missing or invalid min_available_version")
	case least < k.MinHere:
		return nil, invalid("minimum available version cannot be decremented")
	case k.MinEncrypt == 0:
		return nil, invalid("minimum available version cannot be set when minimum encryption version is not set")
	case k.MinDecrypt <= 0 || least > k.MinDecrypt || least > k.MinEncrypt:
		return nil, invalid("minimum available version cannot be higher than the minimum decryption version or the " +
			"minimum encryption version")
	}
	k.MinHere = least
	for n := range k.Versions {
		if n < least {
			delete(k.Versions, n)
		}
	}
	if err := c.save(k, k.Next); err != nil {
		return nil, err
	}
	return k.answer()
}

// export gives out keys that may be given out.
func (c keyring) export() (*secrets.Response, error) {
	kind, name := c.name, c.more[0]
	c.name = name
	k, err := c.find(name)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errNotFound
	}
	if err := k.usable(); err != nil {
		return nil, err
	}
	if !k.Exportable && kind != "public-key" && kind != "certificate-chain" {
		return nil, invalid("private key material is not exportable")
	}
	numbers := k.numbers()
	if len(c.more) > 1 {
		n := k.Latest
		if c.more[1] != "latest" {
			if n, err = strconv.Atoi(c.more[1]); err != nil {
				return nil, invalid("invalid key version")
			}
		}
		if n < k.MinDecrypt {
			return nil, invalid("version for export is below minimum decryption version")
		}
		if !slices.Contains(numbers, n) {
			return nil, invalid("version does not exist or cannot be found")
		}
		numbers = []int{n}
	}
	out := map[string]string{}
	for _, n := range numbers {
		if n < k.MinDecrypt {
			continue
		}
		v := k.Versions[n]
		if err := v.ready(k); err != nil {
			return nil, err
		}
		if out[strconv.Itoa(n)], err = v.exported(k, kind); err != nil {
			return nil, err
		}
	}
	return answer(map[string]any{"name": k.Name, "type": k.Type, "keys": out})
}

func (v *version) exported(k *key, kind string) (string, error) {
	f := k.family()
	switch {
	case kind == "hmac-key":
		return encode(v.macKey(k)), nil
	case kind == "encryption-key" && f.encrypts, kind == "signing-key" && f.signs:
		if f.symmetric {
			return encode(v.Key), nil
		}
		if v.Key == nil {
			return "", invalid("the private half of this version of the key is not here")
		}
		if private, ok := v.signer.(ed25519.PrivateKey); ok {
			return encode(private), nil
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: v.Key})), nil
	case kind == "public-key" && !f.symmetric && !(k.Derived && f.ed25519):
		return v.publicPEM()
	case kind == "certificate-chain" && len(v.Chain) > 0:
		return v.chainPEM(), nil
	case kind == "certificate-chain":
		return "", invalid("no certificate chain was set for this version of the key")
	case slices.Contains([]string{"encryption-key", "signing-key", "public-key"}, kind):
		return "", invalid("%s not available for keys of type %s", kind, k.Type)
	}
	return "", invalid("invalid export type: %s", kind)
}

// backedUp is a backup; it is of ours alone.
type backedUp struct {
	Form string          `json:"corbel_transit_backup"`
	Key  json.RawMessage `json:"key"`
}

// backup gives the whole key out, for restore.
func (c keyring) backup() (*secrets.Response, error) {
	k, err := c.find(c.name)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, invalid("key not found")
	case k.SoftDeleted:
		return nil, k.usable()
	case !k.Exportable:
		return nil, invalid("exporting is disallowed on the policy")
	case !k.PlainBackup:
		return nil, invalid("plaintext backup is disallowed on the policy")
	}
	raw, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(backedUp{"1", raw}); err != nil {
		return nil, err
	}
	return answer(map[string]string{"backup": encode(raw)})
}

func (c keyring) restore() (*secrets.Response, error) {
	raw, err := base64.StdEncoding.DecodeString(c.f.String("backup"))
	force := c.f.Bool("force", false)
	if ferr := c.f.Err(); ferr != nil {
		return nil, ferr
	}
	var b backedUp
	if err != nil || json.Unmarshal(raw, &b) != nil || b.Form != "1" {
		return nil, invalid("field \"backup\": is no backup of a key that was made here")
	}
	k, err := parseKey(b.Key)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	for _, v := range k.Versions {
		if err := v.ready(k); err != nil {
			return nil, errkind.E(errkind.Invalid, "", err)
		}
	}
	if c.name != "" {
		k.Name = c.name
	}
	if err := storage.CheckKey("key/" + k.Name); err != nil {
		return nil, invalid("key name: %v", err)
	}
	have, err := c.find(k.Name)
	if err != nil {
		return nil, err
	}
	was := time.Time{}
	if have != nil {
		if !force {
			return nil, invalid("key %q already exists", k.Name)
		}
		was = have.Next
	}
	c.e.forget(k.Name)
	if k.Next = (time.Time{}); k.Every > 0 {
		k.Next = c.r.Now.UTC().Add(k.Every)
	}
	return &secrets.Response{}, c.save(k, was)
}

// publicOnly is what an import of a public half gives.
func publicOnly(text string) ([]byte, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, invalid("field \"public_key\": holds no key in PEM")
	}
	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return nil, invalid("field \"public_key\": %v", err)
	}
	return block.Bytes, nil
}
