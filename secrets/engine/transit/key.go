package transit

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// family is what keys of a type can do.
type family struct {
	bytes                        int // of a symmetric key
	encrypts, signs, derives     bool
	curve                        elliptic.Curve
	curveName                    string
	rsaBits                      int
	ed25519, hmacOnly, symmetric bool
}

var families = map[string]family{
	"aes128-gcm96":       {bytes: 16, encrypts: true, derives: true, symmetric: true},
	"aes256-gcm96":       {bytes: 32, encrypts: true, derives: true, symmetric: true},
	"chacha20-poly1305":  {bytes: 32, encrypts: true, derives: true, symmetric: true},
	"xchacha20-poly1305": {bytes: 32, encrypts: true, derives: true, symmetric: true},
	"ed25519":            {signs: true, derives: true, ed25519: true, curveName: "ed25519"},
	"ecdsa-p256":         {signs: true, curve: elliptic.P256(), curveName: "P-256"},
	"ecdsa-p384":         {signs: true, curve: elliptic.P384(), curveName: "P-384"},
	"ecdsa-p521":         {signs: true, curve: elliptic.P521(), curveName: "P-521"},
	"rsa-2048":           {encrypts: true, signs: true, rsaBits: 2048, curveName: "rsa-2048"},
	"rsa-3072":           {encrypts: true, signs: true, rsaBits: 3072, curveName: "rsa-3072"},
	"rsa-4096":           {encrypts: true, signs: true, rsaBits: 4096, curveName: "rsa-4096"},
	"hmac":               {bytes: 32, hmacOnly: true, symmetric: true},
}

// key is a key as it is stored, under "key/<name>".
type key struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Derived    bool   `json:"derived,omitempty"`
	Convergent bool   `json:"convergent,omitempty"`
	exits
	Imported  bool `json:"imported,omitempty"`
	MayRotate bool `json:"imported_allow_rotation,omitempty"`
	window
	Every       time.Duration    `json:"auto_rotate,omitempty"`
	Next        time.Time        `json:"next_rotation,omitzero"`
	Size        int              `json:"size,omitempty"`         // of an hmac key, bytes
	SoftDeleted bool             `json:"soft_deleted,omitempty"` // it is shown and restored, and used for nothing
	Versions    map[int]*version `json:"versions"`
}

// exits are the ways out that a key has.
type exits struct {
	Exportable  bool `json:"exportable,omitempty"`
	PlainBackup bool `json:"allow_plaintext_backup,omitempty"`
	Deletable   bool `json:"deletion_allowed,omitempty"`
}

// window is which versions are there, and for what.
type window struct {
	Latest     int `json:"latest"`
	MinDecrypt int `json:"min_decryption"`
	MinEncrypt int `json:"min_encryption,omitempty"` // 0 is the latest
	MinHere    int `json:"min_available,omitempty"`
}

// version is one version of a key.
type version struct {
	// of symmetric ones the key, else PKCS 8; none where only the public half was imported
	Key    []byte    `json:"key,omitempty"`
	Public []byte    `json:"public,omitempty"` // PKIX, where there is no private half
	HMAC   []byte    `json:"hmac"`
	Made   time.Time `json:"created"`
	Chain  [][]byte  `json:"chain,omitempty"` // certificates of this version, DER, its own first

	once   sync.Once
	err    error
	aead   cipher.AEAD
	signer crypto.Signer
	public crypto.PublicKey
	nonces nonces
}

func (k *key) family() family { return families[k.Type] }

// parseKey reads a stored key; its versions are parsed when they are used.
func parseKey(raw []byte) (*key, error) {
	k := &key{}
	if err := unmarshal(raw, k); err != nil {
		return nil, err
	}
	if _, ok := families[k.Type]; !ok || k.Latest < 1 || k.Versions[k.Latest] == nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the key %s is not what was stored", k.Name)
	}
	return k, nil
}

// ready parses the version.
func (v *version) ready(k *key) error {
	v.once.Do(func() { v.err = v.parse(k) })
	return v.err
}

func (v *version) parse(k *key) (err error) {
	switch f := k.family(); {
	case f.hmacOnly:
	case f.symmetric:
		v.aead, err = newAEAD(k.Type, v.Key)
	case v.Key == nil:
		v.public, err = x509.ParsePKIXPublicKey(v.Public)
	default:
		var any any
		if any, err = x509.ParsePKCS8PrivateKey(v.Key); err == nil {
			v.signer = any.(crypto.Signer) // every kind of private key that x509 reads and checkKind lets in
			v.public = v.signer.Public()
		}
	}
	if err != nil {
		return errkind.Errorf(errkind.Corrupt, "a version of the key %s is not what was stored", k.Name)
	}
	return nil
}

func newAEAD(kind string, raw []byte) (cipher.AEAD, error) {
	switch kind {
	case "chacha20-poly1305":
		return chacha20poly1305.New(raw)
	case "xchacha20-poly1305":
		return chacha20poly1305.NewX(raw)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonces gives each nonce once: 64 bits drawn at the first use, and a counter of 32, with bits drawn
// anew when it is used up. Two users of one key meet with a probability of 2^-64 for each pair of
// draws, whatever the number of messages. Nonces of 24 bytes are drawn whole: that many bits do not meet.
type nonces struct {
	mu     sync.Mutex
	prefix [8]byte
	count  uint32
	drawn  bool
}

func (n *nonces) next(out []byte) {
	if len(out) > nonceBytes {
		_, _ = rand.Read(out)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.drawn || n.count == 1<<32-1 {
		_, _ = rand.Read(n.prefix[:])
		n.drawn, n.count = true, 0
	}
	n.count++
	copy(out, n.prefix[:])
	binary.BigEndian.PutUint32(out[8:], n.count)
}

// derive makes a key for a context: HKDF with SHA-256, the context as info.
func derive(from, context []byte, bytes int) ([]byte, error) {
	return hkdf.Key(sha256.New, from, nil, string(context), bytes)
}

// newVersion adds a version with a fresh key.
func (c *call) newVersion(k *key) error {
	v := &version{HMAC: random(32), Made: c.r.Now.UTC()}
	f := k.family()
	var private any
	var err error
	switch {
	case f.hmacOnly:
		v.Key = random(max(k.Size, 32))
	case f.symmetric:
		v.Key = random(f.bytes)
	case f.ed25519:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case f.curve != nil:
		private, err = ecdsa.GenerateKey(f.curve, rand.Reader)
	default:
		permit, err := c.e.Keys.Acquire(c, c.r.Remote.String())
		if err != nil {
			return err
		}
		private, err = rsa.GenerateKey(rand.Reader, f.rsaBits)
		permit.Release()
		if err != nil {
			return err
		}
	}
	if err == nil && private != nil {
		v.Key, err = x509.MarshalPKCS8PrivateKey(private)
	}
	if err != nil {
		return err
	}
	k.add(v)
	return nil
}

func (k *key) add(v *version) {
	versions := make(map[int]*version, len(k.Versions)+1)
	for n, have := range k.Versions {
		versions[n] = have
	}
	k.Latest++
	versions[k.Latest] = v
	k.Versions = versions
	k.MinDecrypt = max(k.MinDecrypt, 1)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// find returns a key, or nil.
func (c *call) find(name string) (*key, error) {
	k, ok, err := c.e.keys.Get(c, c.view, "key/"+name, parseKey)
	if err != nil || !ok {
		return nil, err
	}
	return k, nil
}

func (c *call) need() (*key, error) {
	k, err := c.find(c.name)
	if err == nil && k == nil {
		err = errNoKey
	}
	if err == nil {
		err = k.usable()
	}
	return k, err
}

// usable refuses a key that is set aside.
func (k *key) usable() error {
	if k.SoftDeleted {
		return invalid("key %s is soft-deleted: restore it with keys/%s/soft-delete-restore", k.Name, k.Name)
	}
	return nil
}

// bear makes a key, or gives the one that another request of now makes under this name.
func (c *call) bear(k *key) (*key, error) {
	c.e.bornMu.Lock()
	defer c.e.bornMu.Unlock()
	if have := c.e.born[k.Name]; have != nil {
		return have, nil
	}
	if err := c.newVersion(k); err != nil {
		return nil, err
	}
	if c.e.born == nil || len(c.e.born) > 1024 {
		c.e.born = map[string]*key{}
	}
	c.e.born[k.Name] = k
	return k, nil
}

// forget drops what bear keeps: the key is stored, or gone.
func (e *Engine) forget(name string) {
	e.bornMu.Lock()
	defer e.bornMu.Unlock()
	delete(e.born, name)
}

const rotatePrefix = "rotate/"

// rotateKey is a key's entry in the index of rotations, in the order of time.
func rotateKey(at time.Time, name string) string {
	return fmt.Sprintf("%s%020d/%s", rotatePrefix, max(at.UnixNano(), 0), name)
}

// save stores a key, with its entry in the index of rotations.
func (c *call) save(k *key, was time.Time) error {
	if !was.IsZero() && !was.Equal(k.Next) {
		c.ops = append(c.ops, storage.Delete(rotateKey(was, k.Name)))
	}
	if !k.Next.IsZero() {
		c.ops = append(c.ops, storage.Put(rotateKey(k.Next, k.Name), nil))
		c.e.quiet.Store(0)
	}
	raw, err := json.Marshal(k)
	c.ops = append(c.ops, storage.Put("key/"+k.Name, raw))
	return err
}

// forUse returns the version to encrypt or sign with; 0 asks for the latest.
func (k *key) forUse(n int) (int, *version, error) {
	switch {
	case n == 0:
		n = k.Latest
	case n < 0:
		return 0, nil, invalid("requested version for encryption is negative")
	case n > k.Latest:
		return 0, nil, invalid("requested version for encryption is higher than the latest key version")
	case n < k.MinEncrypt:
		return 0, nil, invalid("requested version for encryption is less than the minimum encryption key version")
	}
	v := k.Versions[n]
	if v == nil {
		return 0, nil, invalid("requested version is not available")
	}
	return n, v, v.ready(k)
}

// forOpening returns the version that something was made with.
func (k *key) forOpening(n int) (*version, error) {
	switch {
	case n > k.Latest:
		return nil, invalid("invalid ciphertext: version is too new")
	case n < max(k.MinDecrypt, 1):
		return nil, invalid("ciphertext or signature version is disallowed by policy (too old)")
	}
	v := k.Versions[n]
	if v == nil {
		return nil, invalid("ciphertext or signature version is disallowed by policy (too old)")
	}
	return v, v.ready(k)
}

// split reads "vault:vN:...".
func split(what, text string) (n int, rest string, err error) {
	rest, ok := strings.CutPrefix(text, "vault:v")
	if !ok {
		return 0, "", invalid("invalid %s: no prefix", what)
	}
	number, rest, ok := strings.Cut(rest, ":")
	if !ok {
		return 0, "", invalid("invalid %s: wrong number of fields", what)
	}
	n, err = strconv.Atoi(number)
	if err != nil || n < 0 || number[0] == '+' {
		return 0, "", invalid("invalid %s: version number could not be decoded", what)
	}
	return max(n, 1), rest, nil // 0 was the first, long ago
}

func joined(n int, rest string) string { return "vault:v" + strconv.Itoa(n) + ":" + rest }

// publicPEM is the public half; of Ed25519 it is the bytes in base64, as Vault shows it.
func (v *version) publicPEM() (string, error) {
	if pub, ok := v.public.(ed25519.PublicKey); ok {
		return encode(pub), nil
	}
	der, err := x509.MarshalPKIXPublicKey(v.public)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), err
}

// show is the key as the API shows it.
func (k *key) show() (map[string]any, error) {
	f := k.family()
	out := map[string]any{"name": k.Name, "type": k.Type, "derived": k.Derived, "deletion_allowed": k.Deletable,
		"exportable":             k.Exportable,
		"allow_plaintext_backup": k.PlainBackup, "latest_version": k.Latest, "min_decryption_version": k.MinDecrypt,
		"min_encryption_version": k.MinEncrypt,
		"min_available_version":  k.MinHere, "supports_encryption": f.encrypts, "supports_decryption": f.encrypts,
		"supports_signing":    f.signs,
		"supports_derivation": f.derives, "auto_rotate_period": int64(k.Every / time.Second), "imported_key": k.Imported,
		"soft_deleted": k.SoftDeleted}
	if k.Imported {
		out["imported_key_allow_rotation"] = k.MayRotate
	}
	if k.Derived {
		out["kdf"], out["convergent_encryption"] = "hkdf_sha256", k.Convergent
		if k.Convergent {
			out["convergent_encryption_version"] = -1
		}
	}
	if f.hmacOnly {
		out["key_size"] = k.Size
	}
	keys := map[string]any{}
	for n, v := range k.Versions {
		if f.symmetric {
			keys[strconv.Itoa(n)] = v.Made.Unix()
			continue
		}
		if err := v.ready(k); err != nil {
			return nil, err
		}
		public := ""
		if !(k.Derived && f.ed25519) {
			var err error
			if public, err = v.publicPEM(); err != nil {
				return nil, err
			}
		}
		keys[strconv.Itoa(n)] = map[string]any{"name": f.curveName, "public_key": public, "certificate_chain": v.chainPEM(),
			"creation_time": v.Made.Format(time.RFC3339Nano)}
	}
	out["keys"] = keys
	return out, nil
}

// numbers are the versions that are here, in order.
func (k *key) numbers() []int {
	var out []int
	for n := range k.Versions {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
