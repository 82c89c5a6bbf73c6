package cloudseal

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// AzureConfig says which key of an Azure Key Vault seals. Without a secret and without a file of a federated token the
// machine's managed identity is used.
type AzureConfig struct {
	TenantID, ClientID, ClientSecret string
	FederatedTokenFile               string // of a workload identity
	Environment, Resource            string // "": the public cloud, and its domain of key vaults
	VaultName, KeyName               string
	Authority                        string // the URL of who gives tokens; "": the environment's
	MetadataHost                     string // of managed identities; "" is Azure's
	Log                              *slog.Logger
	HTTP                             *http.Client // nil: one of its own
	Clock                            clock.Clock  // nil: the machine's
}

// azureClouds are the hosts of each environment, by the names that Azure's SDKs give them.
var azureClouds = map[string]struct{ authority, resource string }{
	"AZUREPUBLICCLOUD":       {"https://login.microsoftonline.com", "vault.azure.net"},
	"AZUREUSGOVERNMENTCLOUD": {"https://login.microsoftonline.us", "vault.usgovcloudapi.net"},
	"AZURECHINACLOUD":        {"https://login.chinacloudapi.cn", "vault.azure.cn"},
	"AZUREGERMANCLOUD":       {"https://login.microsoftonline.de", "vault.microsoftazure.de"},
}

const (
	azureVersion = "7.4"
	azureWrap    = "RSA-OAEP-256"
)

var (
	azureVault    = regexp.MustCompile(`^[A-Za-z0-9-]{3,24}$`)
	azureKey      = regexp.MustCompile(`^[A-Za-z0-9-]{1,127}$`)
	azureVersions = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)
)

// keyVault is the REST API of Azure Key Vault.
type keyVault struct {
	cfg    AzureConfig
	base   string // https://NAME.vault.azure.net
	caller caller
	token  azureToken
}

// NewAzure checks the configuration; it asks nobody.
func NewAzure(cfg AzureConfig) (*Seal, error) {
	if cfg.Environment == "" {
		cfg.Environment = "AZUREPUBLICCLOUD"
	}
	cloud, known := azureClouds[strings.ToUpper(cfg.Environment)]
	if cfg.Resource == "" {
		cfg.Resource = cloud.resource
	}
	if cfg.Authority == "" {
		cfg.Authority = cloud.authority
	}
	u, err := url.Parse("https://x." + cfg.Resource)
	switch {
	case !known:
		return nil, fmt.Errorf("environment: %q must be AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud or "+
			"AzureGermanCloud", cfg.Environment)
	case cfg.VaultName == "":
		return nil, errors.New("vault_name: is missing; the variable VAULT_AZUREKEYVAULT_VAULT_NAME says it too")
	case !azureVault.MatchString(cfg.VaultName):
		return nil, fmt.Errorf("vault_name: %q must be a key vault's name: 3 to 24 letters, digits and dashes", cfg.VaultName)
	case cfg.KeyName == "":
		return nil, errors.New("key_name: is missing; the variable VAULT_AZUREKEYVAULT_KEY_NAME says it too")
	case !azureKey.MatchString(cfg.KeyName):
		return nil, fmt.Errorf("key_name: %q must be a key's name: letters, digits and dashes", cfg.KeyName)
	case err != nil || u.Path != "" || strings.Contains(cfg.Resource, "@"):
		return nil, fmt.Errorf("resource: %q must be a domain such as vault.azure.net", cfg.Resource)
	case (cfg.ClientSecret != "" || cfg.FederatedTokenFile != "") && (cfg.TenantID == "" || cfg.ClientID == ""):
		return nil, errors.New("tenant_id, client_id: a client's secret or federated token needs both; " +
			"AZURE_TENANT_ID and AZURE_CLIENT_ID say them too")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	k := &keyVault{cfg: cfg, base: "https://" + cfg.VaultName + "." + cfg.Resource,
		token: azureToken{turn: make(chan struct{}, 1)}}
	k.caller = newCaller(cfg.HTTP, explainAzure)
	return newSeal("azurekeyvault", k, cfg.Log), nil
}

// do calls an operation of a key, or reads it with method GET.
func (k *keyVault) do(ctx context.Context, method, path string, in, out any) error {
	at := k.base + path + "?api-version=" + azureVersion
	err := k.caller.call(ctx, func(ctx context.Context) (*http.Request, error) {
		token, err := k.token.get(ctx, k)
		if err != nil {
			return nil, err
		}
		var req *http.Request
		if method == http.MethodGet {
			req, err = http.NewRequestWithContext(ctx, method, at, http.NoBody)
		} else {
			req, _, err = post(ctx, at, in)
		}
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		return req, err
	}, out)
	var told *refusal
	if errors.As(err, &told) && told.status == http.StatusUnauthorized {
		k.token.drop(ctx)
	}
	return err
}

// operated is an answer of wrapkey and unwrapkey.
type operated struct {
	Key   string `json:"kid"`
	Value string `json:"value"` // base64url
}

// operate has the key of a version wrap or unwrap.
func (k *keyVault) operate(ctx context.Context, key, operation string, value []byte) ([]byte, error) {
	path, err := k.pathOf(key)
	if err != nil {
		return nil, err
	}
	var out operated
	err = k.do(ctx, http.MethodPost, path+"/"+operation,
		map[string]string{"alg": azureWrap, "value": base64.RawURLEncoding.EncodeToString(value)}, &out)
	if err != nil {
		return nil, err
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(out.Value, "="))
	if err != nil || len(raw) == 0 {
		return nil, errkind.New(errkind.Unavailable, "the answer has no value")
	}
	return raw, nil
}

// pathOf is the path of a key that has a version. Keys of other vaults are refused: the token is for this one.
func (k *keyVault) pathOf(key string) (string, error) {
	path, ok := strings.CutPrefix(key, k.base+"/keys/")
	name, version, both := strings.Cut(path, "/")
	if !ok || !both || !azureKey.MatchString(name) || !azureVersions.MatchString(version) {
		return "", errkind.Errorf(errkind.Invalid, "the key %q is not one of %s: give vault_name as it was, go over to "+
			"shamir, and from there to the new key vault", key, k.base)
	}
	return "/keys/" + name + "/" + version, nil
}

func (k *keyVault) encrypt(ctx context.Context, plain []byte) (string, []byte, error) {
	key, err := k.newest(ctx)
	if err != nil {
		return "", nil, err
	}
	blob, err := k.operate(ctx, key, "wrapkey", plain)
	return key, blob, err
}

func (k *keyVault) decrypt(ctx context.Context, key string, blob []byte) ([]byte, error) {
	return k.operate(ctx, key, "unwrapkey", blob)
}

func (k *keyVault) newest(ctx context.Context) (string, error) {
	var out struct {
		Key struct {
			ID   string `json:"kid"`
			Kind string `json:"kty"`
		} `json:"key"`
	}
	err := k.do(ctx, http.MethodGet, "/keys/"+k.cfg.KeyName, nil, &out)
	switch {
	case err != nil:
		return "", err
	case out.Key.Kind != "RSA" && out.Key.Kind != "RSA-HSM":
		return "", errkind.Errorf(errkind.Invalid, "key_name: the key is of type %q and must be RSA or RSA-HSM", out.Key.Kind)
	}
	_, err = k.pathOf(out.Key.ID)
	return out.Key.ID, err
}

// azureToken keeps the newest token. Any goroutine may ask; one asks Azure, the others wait for it.
type azureToken struct {
	turn  chan struct{} // holds one: whose turn it is guards what follows, also while Azure is asked
	text  string
	until time.Time
}

func (t *azureToken) drop(ctx context.Context) {
	select {
	case t.turn <- struct{}{}:
		t.text = ""
		<-t.turn
	case <-ctx.Done():
	}
}

func (t *azureToken) get(ctx context.Context, k *keyVault) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", errkind.E(errkind.Unavailable, "token", ctx.Err())
	}
	now := k.cfg.Clock.Now()
	const early = 2 * time.Minute
	if t.text != "" && now.Before(t.until) {
		return t.text, nil
	}
	var out struct {
		Token string          `json:"access_token"`
		In    json.RawMessage `json:"expires_in"` // seconds, as a number or as text
	}
	asker := k.caller
	asker.explain = explainAzureToken
	if k.machine() && k.cfg.HTTP == nil {
		asker.http = newClient(nil) // of the machine itself: no proxy
		defer asker.http.CloseIdleConnections()
	}
	if _, err := asker.once(ctx, k.tokenRequest, &out); err != nil {
		var told *refusal
		if errors.As(err, &told) && !told.again {
			return "", errkind.E(errkind.Denied, "token", err)
		}
		return "", errkind.E(errkind.Unavailable, "token", err)
	}
	seconds, err := time.ParseDuration(strings.Trim(string(out.In), `"`) + "s")
	if err != nil || out.Token == "" {
		return "", errkind.New(errkind.Unavailable, "token: the answer has no access_token with expires_in")
	}
	t.text, t.until = out.Token, now.Add(seconds-min(early, seconds/4))
	return t.text, nil
}

// machine tells whether the machine's identity is used.
func (k *keyVault) machine() bool { return k.cfg.ClientSecret == "" && k.cfg.FederatedTokenFile == "" }

// tokenRequest asks for one: by a secret, by a federated token, or as the machine.
func (k *keyVault) tokenRequest(ctx context.Context) (*http.Request, error) {
	c := &k.cfg
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {c.ClientID},
		"scope": {"https://" + c.Resource + "/.default"}}
	switch {
	case c.ClientSecret != "":
		form.Set("client_secret", c.ClientSecret)
	case c.FederatedTokenFile != "":
		text, err := os.ReadFile(c.FederatedTokenFile) // anew each time: it is replaced while we run
		if err != nil {
			return nil, errkind.E(errkind.Unavailable, "AZURE_FEDERATED_TOKEN_FILE", err)
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", strings.TrimSpace(string(text)))
	default:
		host := c.MetadataHost
		if host == "" {
			host = "169.254.169.254"
		}
		query := url.Values{"api-version": {"2018-02-01"}, "resource": {"https://" + c.Resource}}
		if c.ClientID != "" {
			query.Set("client_id", c.ClientID)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+host+"/metadata/identity/oauth2/token?"+query.Encode(), http.NoBody)
		if err == nil {
			req.Header.Set("Metadata", "true")
		}
		return req, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(c.Authority, "/")+"/"+url.PathEscape(c.TenantID)+"/oauth2/v2.0/token",
		strings.NewReader(form.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

var azureAdvice = map[string]string{
	"Forbidden":             "give the identity get, wrapKey and unwrapKey on the key",
	"Unauthorized":          "look at tenant_id: the key vault must trust it",
	"KeyNotFound":           "look at vault_name and key_name; of a key that was deleted, recover it first",
	"VaultNotFound":         "look at vault_name",
	"BadParameter":          "the root key is sealed with another key, or its record is damaged",
	"KeyDisabled":           "enable the key's version in the key vault",
	"KeyOperationForbidden": "let the key wrapKey and unwrapKey (its permitted operations)",
	"Throttled":             "the key vault has too many requests",
}

func explainAzure(_ int, body []byte) *refusal {
	var in struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Inner   struct {
				Code string `json:"code"`
			} `json:"innererror"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &in)
	code := in.Error.Code
	advice := azureAdvice[code]
	if more := azureAdvice[in.Error.Inner.Code]; more != "" {
		code, advice = in.Error.Inner.Code, more
	}
	return &refusal{code: code, message: in.Error.Message, advice: advice}
}

func explainAzureToken(_ int, body []byte) *refusal {
	var in struct {
		Error string `json:"error"`
		Text  string `json:"error_description"`
	}
	_ = json.Unmarshal(body, &in)
	return &refusal{code: in.Error, message: in.Text, advice: "look at tenant_id, client_id and client_secret, or at " +
		"the identity that this machine has"}
}
