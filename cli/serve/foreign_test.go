package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another system's state is refused by its name with the way to bring it over; a folder of ours never is.
func TestRefuseForeign(t *testing.T) {
	for _, test := range []struct{ has, own, want string }{
		{"raft/raft.db", "", "corbel import consul --snapshot"},
		{"raft/wal/wal-meta.db", "", "state of Consul"},
		{"vault.db", "", "state of Vault"},
		{"server/raft/raft.db", "", "state of Nomad"},
		{"etcd/data/member/x", "", "sensuctl dump"},
		{"raft/raft.db", "raft/catalog/x", ""},
		{"node-id", "", ""},
	} {
		dir := t.TempDir()
		for _, name := range []string{test.has, test.own} {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if name == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := refuseForeign(dir)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s, %s: %v, want %q", test.has, test.own, err, test.want)
		}
	}
	if err := refuseForeign(""); err != nil {
		t.Error(err)
	}
}
