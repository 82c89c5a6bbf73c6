package base

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"

	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/config"
)

// The agent's own tokens by the names of their kinds.
const (
	TokenDefault     = "default"
	TokenAgent       = "agent"
	TokenRecovery    = "agent_recovery"
	tokenReplication = "replication"
	TokenDNS         = "dns"
	tokenConfigFile  = "config_file_service_registration"
)

// tokenKinds are the names that the API takes, and the kind that each stands for.
var tokenKinds = map[string]string{
	TokenDefault: TokenDefault, TokenAgent: TokenAgent, TokenRecovery: TokenRecovery, tokenReplication: tokenReplication,
	TokenDNS: TokenDNS, tokenConfigFile: tokenConfigFile,
	"agent_master": TokenRecovery, "acl_token": TokenDefault, "acl_agent_token": TokenAgent,
	"acl_agent_master_token": TokenRecovery, "acl_replication_token": tokenReplication,
}

// tokensFile keeps what the API set, in the data directory.
const tokensFile = "acl-tokens.json"

// Tokens are the tokens that this process uses itself. Those set over the API win over
// the configuration until the process ends, and with acl.enable_token_persistence also
// after that. Safe for concurrent use.
type Tokens struct {
	fs   vfs.FS
	path string            // "" keeps nothing
	save sync.Mutex        // held while the file is written, so that it never goes back
	mu   sync.RWMutex      // guards what follows
	set  map[string]string // over the API, by kind
	file map[string]string // from the configuration
	// management stands in for a server's agent token: who knows it may register this node anyhow.
	management string
}

// NewTokens reads what was kept, if anything is to be kept.
func NewTokens(fsys vfs.FS, cfg *config.Config) (*Tokens, error) {
	t := &Tokens{fs: fsys, set: map[string]string{}}
	t.Reload(&cfg.ACL)
	if !cfg.ACL.TokenPersistence || cfg.DataDir == "" {
		return t, nil
	}
	t.path = filepath.Join(cfg.DataDir, tokensFile)
	data, err := vfs.ReadDurable(fsys, t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, nil
	case err == nil:
		err = json.Unmarshal(data, &t.set)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tokens that were set over the API: %s: %w; set them again after deleting the file",
			t.path, err)
	}
	return t, nil
}

// Reload takes the tokens of a fresh configuration.
func (t *Tokens) Reload(acl *config.ACL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.management = acl.InitialManagement
	t.file = map[string]string{TokenDefault: acl.Default, TokenAgent: acl.Agent, TokenRecovery: acl.AgentRecovery,
		tokenReplication: acl.Replication, TokenDNS: acl.DNSToken, tokenConfigFile: acl.ConfigFileService}
}

// Get is the token of a kind, "" when there is none.
func (t *Tokens) Get(kind string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if token, ok := t.set[kind]; ok {
		return token
	}
	return t.file[kind]
}

// Change sets the token that the API names, durably where that is wanted. Kind NotFound for a name that there is not.
func (t *Tokens) Change(name, token string) error {
	kind, ok := tokenKinds[name]
	if !ok {
		return errkind.Errorf(errkind.NotFound, "Token %q is unknown", name)
	}
	t.save.Lock()
	defer t.save.Unlock()
	t.mu.RLock()
	next := maps.Clone(t.set)
	t.mu.RUnlock()
	next[kind] = token
	if t.path != "" {
		data, err := json.Marshal(next)
		if err == nil {
			err = vfs.WriteFileAtomic(t.fs, t.path, data, 0o600)
		}
		if err != nil {
			return errkind.E(errkind.Internal, "keep the token: acl.enable_token_persistence is on", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = next
	return nil
}

// Sync are the tokens of anti-entropy.
func (t *Tokens) Sync() local.Tokens {
	own := local.Tokens{Agent: t.Get(TokenAgent), Default: t.Get(TokenDefault), ConfigFile: t.Get(tokenConfigFile)}
	if own.Agent == "" && own.Default == "" {
		t.mu.RLock()
		defer t.mu.RUnlock()
		own.Agent = t.management
	}
	return own
}

// Own is the token of the agent's own requests.
func (t *Tokens) Own() string { return cmp.Or(t.Get(TokenAgent), t.Get(TokenDefault)) }
