// Package cloudsealtest has clouds that keep keys, for tests: each answers its documented calls in their documented
// form, and judges signatures and tokens by itself.
package cloudsealtest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/seal"
)

// Faults are what a cloud does next, and what it was asked. They may be changed while it runs.
type Faults struct {
	mu    sync.Mutex
	fail  []Failure
	hang  chan struct{}
	calls []string
}

// Failure is an answer that is no success.
type Failure struct {
	Status     int
	Body       string
	RetryAfter string
}

// Fail has the next calls fail, one by one.
func (f *Faults) Fail(list ...Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = append(f.fail, list...)
}

// Hang has all calls wait until release is called.
func (f *Faults) Hang() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang = make(chan struct{})
	return sync.OnceFunc(func() { close(f.hang) })
}

// Calls are the operations that were asked for since the last time.
func (f *Faults) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// enter notes a call, and answers it where it is to fail.
func (f *Faults) enter(w http.ResponseWriter, r *http.Request, name string) (done bool) {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	hang := f.hang
	var next *Failure
	if len(f.fail) > 0 {
		next, f.fail = &f.fail[0], f.fail[1:]
	}
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return true
		}
	}
	if next == nil {
		return false
	}
	if next.RetryAfter != "" {
		w.Header().Set("Retry-After", next.RetryAfter)
	}
	w.WriteHeader(next.Status)
	fmt.Fprint(w, next.Body)
	return true
}

// ring is the versions of one key; the last one encrypts.
type ring struct {
	mu       sync.Mutex
	names    []string
	keys     map[string][]byte
	disabled map[string]bool
}

func (k *ring) add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	if k.keys == nil {
		k.keys, k.disabled = map[string][]byte{}, map[string]bool{}
	}
	k.keys[name], k.names = key, append(k.names, name)
}

func (k *ring) now() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.names[len(k.names)-1]
}

var errDisabled = errors.New("disabled")

func (k *ring) key(name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disabled[name] {
		return nil, errDisabled
	}
	return k.keys[name], nil
}

func (k *ring) wrap(name string, plain []byte) ([]byte, error) {
	key, err := k.key(name)
	if err != nil {
		return nil, err
	}
	return seal.Wrap(key, plain, name)
}

func (k *ring) unwrap(name string, blob []byte) ([]byte, error) {
	key, err := k.key(name)
	if err != nil {
		return nil, err
	}
	return seal.Unwrap(key, blob, name)
}

// KMS is AWS KMS: JSON 1.1, requests signed by version 4.
type KMS struct {
	Faults
	AccessKey, SecretKey, SessionToken, Region string

	ring    ring
	aliases map[string]string
}

// NewKMS has one key, which alias/unseal names too.
func NewKMS(region, access, secret string) *KMS {
	k := &KMS{AccessKey: access, SecretKey: secret, Region: region, aliases: map[string]string{}}
	k.AddKey("1234abcd-12ab-34cd-56ef-1234567890ab")
	return k
}

// AddKey makes another key, which alias/unseal names from now on.
func (k *KMS) AddKey(id string) {
	arn := "arn:aws:kms:" + k.Region + ":111122223333:key/" + id
	k.ring.add(arn)
	k.ring.mu.Lock()
	defer k.ring.mu.Unlock()
	k.aliases[id], k.aliases[arn], k.aliases["alias/unseal"] = arn, arn, arn
}

// Disable takes a key out of use.
func (k *KMS) Disable(id string, off bool) {
	k.ring.mu.Lock()
	defer k.ring.mu.Unlock()
	k.ring.disabled[k.aliases[id]] = off
}

func awsError(w http.ResponseWriter, kind, message string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": kind, "message": message})
}

// ServeHTTP implements http.Handler.
func (k *KMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, _ := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
	body, _ := io.ReadAll(r.Body)
	if k.enter(w, r, action) {
		return
	}
	if kind, message := k.judge(r, body); kind != "" {
		awsError(w, kind, message)
		return
	}
	var in struct {
		KeyID           string `json:"KeyId"`
		Plaintext, Blob []byte
		CiphertextBlob  []byte
	}
	if err := json.Unmarshal(body, &in); err != nil {
		awsError(w, "SerializationException", err.Error())
		return
	}
	k.ring.mu.Lock()
	arn, ok := k.aliases[in.KeyID]
	k.ring.mu.Unlock()
	if !ok {
		awsError(w, "NotFoundException", "Key '"+in.KeyID+"' does not exist")
		return
	}
	var out any
	var err error
	switch action {
	case "Encrypt":
		var blob []byte
		blob, err = k.ring.wrap(arn, in.Plaintext)
		out = map[string]any{"KeyId": arn, "CiphertextBlob": blob, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}
	case "Decrypt":
		var plain []byte
		plain, err = k.ring.unwrap(arn, in.CiphertextBlob)
		out = map[string]any{"KeyId": arn, "Plaintext": plain, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}
	case "DescribeKey":
		out = map[string]any{"KeyMetadata": map[string]any{"Arn": arn, "KeyState": "Enabled"}}
	default:
		awsError(w, "UnknownOperationException", action)
		return
	}
	switch {
	case errors.Is(err, errDisabled):
		awsError(w, "DisabledException", arn+" is disabled.")
	case err != nil:
		awsError(w, "InvalidCiphertextException", "")
	default:
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(out)
	}
}

// judge is what is wrong with the signature, as the reference of version 4 says.
func (k *KMS) judge(r *http.Request, body []byte) (kind, message string) {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme != "AWS4-HMAC-SHA256" {
		return "MissingAuthenticationTokenException", "Missing Authentication Token"
	}
	parts := map[string]string{}
	for _, part := range strings.Split(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	scope := strings.Split(parts["Credential"], "/")
	stamp := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", stamp)
	switch {
	case len(scope) != 5 || scope[0] != k.AccessKey || r.Header.Get("X-Amz-Security-Token") != k.SessionToken:
		return "UnrecognizedClientException", "The security token included in the request is invalid."
	case err != nil || time.Since(at).Abs() > 5*time.Minute || scope[1] != stamp[:8]:
		return "InvalidSignatureException", "Signature expired: " + stamp
	case scope[2] != k.Region || scope[3] != "kms" || scope[4] != "aws4_request":
		return "InvalidSignatureException", "Credential should be scoped to a valid region."
	}
	signed := strings.Split(parts["SignedHeaders"], ";")
	for _, need := range []string{"host", "x-amz-date", "x-amz-target"} {
		if !slices.Contains(signed, need) {
			return "InvalidSignatureException", need + " is not signed"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s\n", r.Method, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.RawQuery)
	for _, name := range signed {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.TrimSpace(value))
	}
	sum := sha256.Sum256(body)
	fmt.Fprintf(&b, "\n%s\n%s", parts["SignedHeaders"], hex.EncodeToString(sum[:]))
	canonical := sha256.Sum256([]byte(b.String()))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + strings.Join(scope[1:], "/") + "\n" + hex.EncodeToString(canonical[:])
	key := []byte("AWS4" + k.SecretKey)
	for _, step := range append(scope[1:], text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(step))
		key = mac.Sum(nil)
	}
	if hex.EncodeToString(key) != parts["Signature"] {
		return "InvalidSignatureException", "The request signature we calculated does not match the signature you provided."
	}
	return "", ""
}
