package base

import (
	"testing"

	"corbel.dev/corbel/catalog/local"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/config"
)

func TestTokensSetOverTheAPIWinAndLast(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{Process: config.Process{DataDir: "/d"}}
	cfg.ACL.Default, cfg.ACL.Agent, cfg.ACL.TokenPersistence = "from-file", "agent-file", true
	open := func() *Tokens {
		t.Helper()
		tokens, err := NewTokens(disk, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	tokens := open()
	if got := tokens.Get(TokenDefault); got != "from-file" {
		t.Errorf("default is %q", got)
	}
	for _, name := range []string{"default", "agent", "agent_recovery", "agent_master", "replication", "dns",
		"config_file_service_registration",
		"acl_token", "acl_agent_token", "acl_agent_master_token", "acl_replication_token"} {
		if err := tokens.Change(name, "new-"+tokenKinds[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tokens.Change("other", "x"); !errkind.Is(err, errkind.NotFound) ||
		errkind.Text(err) != `Token "other" is unknown` {
		t.Errorf("an unknown kind: %v", err)
	}
	fresh := cfg.ACL
	fresh.Default = "reloaded"
	tokens.Reload(&fresh)
	want := local.Tokens{Agent: "new-agent", Default: "new-default", ConfigFile: "new-config_file_service_registration"}
	if got := tokens.Sync(); got != want {
		t.Errorf("after a reload %+v", got)
	}
	if got := open().Sync(); got != want {
		t.Errorf("after a restart %+v", got)
	}
	if err := tokens.Change("default", ""); err != nil || open().Get(TokenDefault) != "" {
		t.Errorf("a token that was taken back is %q, %v", open().Get(TokenDefault), err)
	}
	cfg.ACL.TokenPersistence = false
	if got := open().Get(TokenAgent); got != "agent-file" {
		t.Errorf("without persistence the agent's token is %q", got)
	}
}
