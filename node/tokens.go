package node

import (
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
	tokenDefault     = "default"
	tokenAgent       = "agent"
	tokenRecovery    = "agent_recovery"
	tokenReplication = "replication"
	tokenDNS         = "dns"
	tokenConfigFile  = "config_file_service_registration"
)

// tokenKinds are the names that the API takes, and the kind that each stands for.
var tokenKinds = map[string]string{
	tokenDefault: tokenDefault, tokenAgent: tokenAgent, tokenRecovery: tokenRecovery, tokenReplication: tokenReplication,
	tokenDNS: tokenDNS, tokenConfigFile: tokenConfigFile,
	"agent_master": tokenRecovery, "acl_token": tokenDefault, "acl_agent_token": tokenAgent,
	"acl_agent_master_token": tokenRecovery, "acl_replication_token": tokenReplication,
}

// tokensFile keeps what the API set, in the data directory.
const tokensFile = "acl-tokens.json"

// ownTokens are the tokens that this process uses itself. Those set over the API win over
// the configuration until the process ends, and with acl.enable_token_persistence also
// after that. Safe for concurrent use.
type ownTokens struct {
	fs   vfs.FS
	path string            // "" keeps nothing
	save sync.Mutex        // held while the file is written, so that it never goes back
	mu   sync.RWMutex      // guards what follows
	set  map[string]string // over the API, by kind
	file map[string]string // from the configuration
	// management stands in for a server's agent token: who knows it may register this node anyhow.
	management string
}

// newOwnTokens reads what was kept, if anything is to be kept.
func newOwnTokens(fsys vfs.FS, cfg *config.Config) (*ownTokens, error) {
	t := &ownTokens{fs: fsys, set: map[string]string{}}
	t.reload(&cfg.ACL)
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

// reload takes the tokens of a fresh configuration.
func (t *ownTokens) reload(acl *config.ACL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.management = acl.InitialManagement
	t.file = map[string]string{tokenDefault: acl.Default, tokenAgent: acl.Agent, tokenRecovery: acl.AgentRecovery,
		tokenReplication: acl.Replication, tokenDNS: acl.DNSToken, tokenConfigFile: acl.ConfigFileService}
}

// get is the token of a kind, "" when there is none.
func (t *ownTokens) get(kind string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if token, ok := t.set[kind]; ok {
		return token
	}
	return t.file[kind]
}

// change sets the token that the API names, durably where that is wanted. Kind NotFound for a name that there is not.
func (t *ownTokens) change(name, token string) error {
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

// sync are the tokens of anti-entropy.
func (t *ownTokens) sync() local.Tokens {
	own := local.Tokens{Agent: t.get(tokenAgent), Default: t.get(tokenDefault), ConfigFile: t.get(tokenConfigFile)}
	if own.Agent == "" && own.Default == "" {
		t.mu.RLock()
		defer t.mu.RUnlock()
		own.Agent = t.management
	}
	return own
}
