package cloudsealtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
)

// GoogleKMS is Cloud KMS, v1, with who gives tokens.
type GoogleKMS struct {
	Faults
	Name  string // of the key, as a resource
	Token string // that is good

	ring ring
	n    int
}

// NewGoogleKMS has one key with one version.
func NewGoogleKMS(name, token string) *GoogleKMS {
	g := &GoogleKMS{Name: name, Token: token}
	g.Rotate()
	return g
}

// Rotate makes a new primary version.
func (g *GoogleKMS) Rotate() {
	g.n++
	g.ring.add(g.Name + "/cryptoKeyVersions/" + strconv.Itoa(g.n))
}

func sum(b []byte) string {
	return strconv.FormatUint(uint64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))), 10)
}

func googleError(w http.ResponseWriter, code int, status, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message,
		"status": status}})
}

// ServeHTTP implements http.Handler.
func (g *GoogleKMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Host == "metadata" {
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":3599,"token_type":"Bearer"}`, g.Token)
		return
	}
	name, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), ":")
	if g.enter(w, r, method) {
		return
	}
	switch {
	case r.Host != "cloudkms.googleapis.com":
		googleError(w, http.StatusNotFound, "NOT_FOUND", r.Host)
		return
	case r.Header.Get("Authorization") != "Bearer "+g.Token:
		googleError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
		return
	case name != g.Name:
		googleError(w, http.StatusNotFound, "NOT_FOUND", "CryptoKey "+name+" not found.")
		return
	}
	var in struct{ Plaintext, Ciphertext []byte }
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			googleError(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
			return
		}
	}
	now := g.ring.now()
	switch method {
	case "":
		_ = json.NewEncoder(w).Encode(map[string]any{"name": g.Name, "primary": map[string]any{"name": now}})
	case "encrypt":
		blob, _ := g.ring.wrap(now, in.Plaintext)
		blob = append([]byte(now+"\x00"), blob...)
		_ = json.NewEncoder(w).Encode(map[string]any{"name": now, "ciphertext": blob, "ciphertextCrc32c": sum(blob),
			"verifiedPlaintextCrc32c": true, "protectionLevel": "SOFTWARE"})
	case "decrypt":
		version, blob, _ := strings.Cut(string(in.Ciphertext), "\x00")
		plain, err := g.ring.unwrap(version, []byte(blob))
		if err != nil {
			googleError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "Decryption failed: the ciphertext is invalid.")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"plaintext": plain, "plaintextCrc32c": sum(plain),
			"usedPrimary": version == now})
	}
}

// KeyVault is an Azure Key Vault, with who gives tokens.
type KeyVault struct {
	Faults
	Base, Key              string // https://NAME.vault.azure.net, and the key's name
	Tenant, Client, Secret string
	Assertion              string // a federated token that is good
	token                  string
	ring                   ring
	n                      int
}

// NewKeyVault has one key with one version.
func NewKeyVault(base, key string) *KeyVault {
	v := &KeyVault{Base: base, Key: key, token: "azure-token"}
	v.Rotate()
	return v
}

// Rotate makes a new version.
func (v *KeyVault) Rotate() {
	v.n++
	v.ring.add(fmt.Sprintf("%s/keys/%s/%032x", v.Base, v.Key, v.n))
}

// Expire makes tokens that were given invalid.
func (v *KeyVault) Expire() { v.token += "+" }

func azureError(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message}})
}

// ServeHTTP implements http.Handler.
func (v *KeyVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host == "169.254.169.254" || r.Host == "login.microsoftonline.com":
		v.grant(w, r)
		return
	case v.enter(w, r, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]):
		return
	case "https://"+r.Host != v.Base:
		azureError(w, http.StatusNotFound, "VaultNotFound", r.Host)
		return
	case r.Header.Get("Authorization") != "Bearer "+v.token:
		azureError(w, http.StatusUnauthorized, "Unauthorized", "AKV10032: Invalid issuer.")
		return
	case r.URL.Query().Get("api-version") != "7.4":
		azureError(w, http.StatusBadRequest, "BadParameter", "api-version")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method == http.MethodGet {
		if path != "keys/"+v.Key {
			azureError(w, http.StatusNotFound, "KeyNotFound", "A key with (name/id) "+path+" was not found in this key vault.")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"key": map[string]any{"kid": v.ring.now(), "kty": "RSA",
			"key_ops": []string{"wrapKey", "unwrapKey"}}, "attributes": map[string]any{"enabled": true}})
		return
	}
	cut := strings.LastIndex(path, "/")
	kid, operation := v.Base+"/"+path[:cut], path[cut+1:]
	var in struct{ Alg, Value string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	value, err := base64.RawURLEncoding.DecodeString(in.Value)
	var out []byte
	switch {
	case err != nil || in.Alg != "RSA-OAEP-256":
		err = errors.New(in.Alg)
	case operation == "wrapkey":
		out, err = v.ring.wrap(kid, value)
	case operation == "unwrapkey":
		out, err = v.ring.unwrap(kid, value)
	default:
		err = errors.New(operation)
	}
	if err != nil {
		azureError(w, http.StatusBadRequest, "BadParameter", err.Error())
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"kid": kid, "value": base64.RawURLEncoding.EncodeToString(out)})
}

// grant gives a token, to a client with its secret or federated token, or to the machine.
func (v *KeyVault) grant(w http.ResponseWriter, r *http.Request) {
	if v.enter(w, r, "token") {
		return
	}
	if r.Host == "169.254.169.254" {
		if r.Header.Get("Metadata") != "true" || r.URL.Path != "/metadata/identity/oauth2/token" ||
			r.URL.Query().Get("resource") != "https://vault.azure.net" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":"3599","token_type":"Bearer"}`, v.token)
		return
	}
	_ = r.ParseForm()
	f := r.PostForm
	byFile := f.Get("client_assertion") != "" && f.Get("client_assertion") == v.Assertion &&
		f.Get("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	if r.URL.Path != "/"+v.Tenant+"/oauth2/v2.0/token" || f.Get("grant_type") != "client_credentials" ||
		f.Get("client_id") != v.Client || f.Get("client_secret") != v.Secret && !byFile ||
		f.Get("scope") != "https://vault.azure.net/.default" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided."}`)
		return
	}
	fmt.Fprintf(w, `{"access_token":%q,"expires_in":3599,"token_type":"Bearer"}`, v.token)
}
