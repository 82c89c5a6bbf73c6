package cloudseal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage/gcsstore"
)

// GoogleConfig says which key of Google Cloud KMS seals.
type GoogleConfig struct {
	Project, Region, KeyRing, CryptoKey string
	Credentials                         string // the file of a service account's key; "": the machine's account
	MetadataHost                        string // of the machine's account; "" is Google's
	Log                                 *slog.Logger
	HTTP                                *http.Client // nil: one of its own
	Clock                               clock.Clock  // nil: the machine's
}

const kmsScope = "https://www.googleapis.com/auth/cloudkms"

// googleKMS is the REST API of Cloud KMS, v1.
type googleKMS struct {
	name   string // of the key, as a resource
	caller caller
	tokens *gcsstore.Tokens
}

// googleName is the resource of a key and its version.
var googleName = regexp.MustCompile(`^(projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+)` +
	`/cryptoKeyVersions/[0-9]+$`)

// NewGoogle checks the configuration and reads the file of credentials; it asks nobody.
func NewGoogle(cfg GoogleConfig) (*Seal, error) {
	for _, need := range []struct{ key, value, also string }{
		{"project", cfg.Project, "GOOGLE_PROJECT"}, {"region", cfg.Region, "GOOGLE_REGION"},
		{"key_ring", cfg.KeyRing, "VAULT_GCPCKMS_SEAL_KEY_RING"},
		{"crypto_key", cfg.CryptoKey, "VAULT_GCPCKMS_SEAL_CRYPTO_KEY"},
	} {
		if need.value == "" {
			return nil, fmt.Errorf("%s: is missing; the variable %s says it too", need.key, need.also)
		}
		if strings.ContainsAny(need.value, "/?#%") {
			return nil, fmt.Errorf("%s: %q must be a name, without a path", need.key, need.value)
		}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	k := &googleKMS{name: "projects/" + cfg.Project + "/locations/" + cfg.Region + "/keyRings/" + cfg.KeyRing +
		"/cryptoKeys/" + cfg.CryptoKey}
	k.caller = newCaller(cfg.HTTP, explainGoogle)
	if cfg.Credentials == "" {
		k.tokens = gcsstore.Instance(cfg.MetadataHost, cfg.Clock)
		return newSeal("gcpckms", k, cfg.Log), nil
	}
	file, err := os.ReadFile(cfg.Credentials)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if k.tokens, err = gcsstore.ServiceAccount(file, kmsScope, cfg.Clock); err != nil {
		return nil, fmt.Errorf("credentials: %s: %w", cfg.Credentials, err)
	}
	return newSeal("gcpckms", k, cfg.Log), nil
}

// do calls a method of a key, or reads the key where there is none.
func (k *googleKMS) do(ctx context.Context, name, method string, in, out any) error {
	at := "https://cloudkms.googleapis.com/v1/" + (&url.URL{Path: name}).EscapedPath()
	used := ""
	err := k.caller.call(ctx, func(ctx context.Context) (*http.Request, error) {
		token, err := k.tokens.Get(ctx)
		if err != nil {
			return nil, err
		}
		used = token
		var req *http.Request
		if method == "" {
			req, err = http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
		} else {
			req, _, err = post(ctx, at+":"+method, in)
		}
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		return req, err
	}, out)
	var told *refusal
	if errors.As(err, &told) && told.status == http.StatusUnauthorized {
		k.tokens.Drop(ctx, used)
	}
	return err
}

// castagnoli is the sum that Cloud KMS takes and gives, as a number in text.
func castagnoli(b []byte) string {
	return strconv.FormatUint(uint64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))), 10)
}

var errDamaged = errkind.New(errkind.Unavailable, "what arrived is not what was sent: its CRC32C differs")

func (k *googleKMS) encrypt(ctx context.Context, plain []byte) (string, []byte, error) {
	var out struct {
		Name     string `json:"name"`
		Blob     []byte `json:"ciphertext"`
		Sum      string `json:"ciphertextCrc32c"`
		Verified bool   `json:"verifiedPlaintextCrc32c"`
	}
	err := k.do(ctx, k.name, "encrypt", map[string]any{"plaintext": plain, "plaintextCrc32c": castagnoli(plain)}, &out)
	switch {
	case err != nil:
	case !googleName.MatchString(out.Name) || len(out.Blob) == 0:
		err = errkind.New(errkind.Unavailable, "the answer has no name of a key version or no ciphertext")
	case !out.Verified || out.Sum != castagnoli(out.Blob):
		err = errDamaged
	}
	return out.Name, out.Blob, err
}

func (k *googleKMS) decrypt(ctx context.Context, key string, blob []byte) ([]byte, error) {
	parts := googleName.FindStringSubmatch(key)
	if parts == nil {
		return nil, errkind.Errorf(errkind.Invalid, "the record of the root key names no key of Cloud KMS: %q", key)
	}
	var out struct {
		Plain []byte `json:"plaintext"`
		Sum   string `json:"plaintextCrc32c"`
	}
	err := k.do(ctx, parts[1], "decrypt", map[string]any{"ciphertext": blob, "ciphertextCrc32c": castagnoli(blob)}, &out)
	switch {
	case err != nil:
	case len(out.Plain) == 0:
		err = errkind.New(errkind.Unavailable, "the answer has no plaintext")
	case out.Sum != castagnoli(out.Plain):
		err = errDamaged
	}
	return out.Plain, err
}

func (k *googleKMS) newest(ctx context.Context) (string, error) {
	var out struct {
		Primary struct {
			Name string `json:"name"`
		} `json:"primary"`
	}
	err := k.do(ctx, k.name, "", nil, &out)
	if err == nil && !googleName.MatchString(out.Primary.Name) {
		err = errkind.New(errkind.Unavailable, "the key has no primary version")
	}
	return out.Primary.Name, err
}

var googleAdvice = map[string]string{
	"PERMISSION_DENIED":   "give the account roles/cloudkms.cryptoKeyEncrypterDecrypter and cloudkms.cryptoKeys.get",
	"UNAUTHENTICATED":     "look at credentials, and at this machine's clock",
	"NOT_FOUND":           "look at project, region, key_ring and crypto_key",
	"FAILED_PRECONDITION": "enable the key's version in Cloud KMS; restore one that is to be destroyed first",
	"INVALID_ARGUMENT":    "the root key is sealed with another key, or its record is damaged",
	"RESOURCE_EXHAUSTED":  "Cloud KMS has too many requests of this project: raise its quota",
}

func explainGoogle(_ int, body []byte) *refusal {
	var in struct {
		Error struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &in)
	return &refusal{code: in.Error.Status, message: in.Error.Message, advice: googleAdvice[in.Error.Status]}
}
