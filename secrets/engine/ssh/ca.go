package ssh

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/record"
	xssh "golang.org/x/crypto/ssh"
)

// authority is what is stored of the mount's key.
type authority struct {
	Private string `json:"private_key"` // PEM
	Public  string `json:"public_key"`  // a line of authorized_keys
}

const caKey = "ca"

var errNoCA = invalid("keys haven't been configured yet")

func (c *call) ca() (*authority, error) {
	a, ok, err := c.e.cas.Get(c, c.view, caKey, record.ReadJSON[authority])
	if err == nil && !ok {
		err = errNoCA
	}
	return a, err
}

func (c *call) caRead() (*secrets.Response, error) {
	a, err := c.ca()
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"public_key": a.Public})
}

func (c *call) publicKey() (*secrets.Response, error) {
	a, err := c.ca()
	if err != nil {
		return nil, err
	}
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "text/plain", Body: []byte(a.Public)}}, nil
}

func (c *call) caDelete() (*secrets.Response, error) {
	return &secrets.Response{Ops: []secrets.Op{{Key: caKey}}}, nil
}

func (c *call) caWrite() (*secrets.Response, error) {
	private, public := c.f.String("private_key"), c.f.String("public_key")
	generate := c.f.Bool("generate_signing_key", private == "" && public == "")
	kind, bits := c.f.String("key_type"), c.f.Int("key_bits", 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if _, ok, err := c.view.Get(c, caKey); err != nil {
		return nil, err
	} else if ok {
		return nil, invalid("keys are already configured; delete them before reconfiguring")
	}
	var a authority
	var err error
	switch {
	case generate && (private != "" || public != ""):
		return nil, invalid("public_key and private_key must not be set when generate_signing_key is set to true")
	case generate:
		a, err = newAuthority(kind, bits)
	case private == "" || public == "":
		return nil, invalid("public_key and private_key are both required when generate_signing_key is false")
	default:
		a, err = readAuthority(private, public)
	}
	if err != nil {
		return nil, err
	}
	if err := c.put(caKey, a); err != nil {
		return nil, err
	}
	return answer(map[string]any{"public_key": a.Public})
}

// readAuthority takes keys that were given, which must belong to each other.
func readAuthority(private, public string) (a authority, err error) {
	signer, err := xssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return a, invalid("unable to parse private_key as an SSH private key: %v", err)
	}
	given, _, _, _, err := xssh.ParseAuthorizedKey([]byte(public))
	if err != nil {
		return a, invalid("unable to parse public_key as an SSH public key: %v", err)
	}
	if !bytes.Equal(given.Marshal(), signer.PublicKey().Marshal()) {
		return a, invalid("public_key and private_key do not belong to each other")
	}
	return authority{private, string(xssh.MarshalAuthorizedKey(given))}, nil
}

func newAuthority(kind string, bits int) (a authority, err error) {
	if kind == "" {
		kind = "ssh-rsa"
	}
	key, err := newKey(kind, bits)
	if err != nil {
		return a, err
	}
	private, public, err := texts(key)
	return authority{private, public}, err
}

// texts are a key as it is stored and its public half as a line.
func texts(key crypto.Signer) (private, public string, err error) {
	block, err := xssh.MarshalPrivateKey(key, "")
	if err != nil {
		return "", "", err
	}
	pub, err := xssh.NewPublicKey(key.Public())
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(block)), string(xssh.MarshalAuthorizedKey(pub)), nil
}

// curves are the names of keys on curves, by their sizes.
var curves = map[int]elliptic.Curve{256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}

// newKey makes a key of a type, in Vault's names or those of SSH; bits 0 is the type's own size.
func newKey(kind string, bits int) (crypto.Signer, error) {
	switch {
	case kind == "ed25519" || kind == "ssh-ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case kind == "ec" || strings.HasPrefix(kind, "ecdsa-sha2-nistp"):
		if kind != "ec" {
			if _, err := fmt.Sscanf(kind, "ecdsa-sha2-nistp%d", &bits); err != nil {
				return nil, invalid("unknown key_type %q", kind)
			}
		}
		if bits == 0 {
			bits = 256
		}
		if curves[bits] == nil {
			return nil, invalid("key_bits of an ec key must be 256, 384 or 521")
		}
		return ecdsa.GenerateKey(curves[bits], rand.Reader)
	case kind == "rsa" || kind == "ssh-rsa":
		if bits == 0 {
			bits = 4096
			if kind == "rsa" {
				bits = 2048
			}
		}
		if !slices.Contains([]int{2048, 3072, 4096}, bits) {
			return nil, invalid("key_bits of an rsa key must be 2048, 3072 or 4096")
		}
		return rsa.GenerateKey(rand.Reader, bits)
	}
	return nil, invalid("unknown key_type %q: rsa, ec or ed25519", kind)
}
