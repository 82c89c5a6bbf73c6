package serve

import (
	"fmt"
	"os"
	"path/filepath"
)

// foreignState is what other systems keep in their data folders, and how to bring it over.
var foreignState = []struct{ file, whose, how string }{
	{"vault.db", "Vault", "let Vault's own `vault operator migrate` copy its Raft storage to a `file` storage, or write " +
		"its secrets anew (docs/secrets-servers.md)"},
	{"raft/raft.db", "Consul", importConsul},
	{"raft/wal/wal-meta.db", "Consul", importConsul},
	{"server/raft/raft.db", "Nomad", "register its jobs anew"},
	{"etcd/data/member", "Sensu Go", "`sensuctl dump all` while it runs, and `corbel create -f` afterwards"},
	{"etcd/member", "Sensu Go", "`sensuctl dump all` while it runs, and `corbel create -f` afterwards"},
}

const importConsul = "save its state while it runs (`consul snapshot save backup.snap`), and import that " +
	"afterwards: `corbel import consul --snapshot backup.snap`"

// ownState are the folders that a start of Corbel leaves in its data folder.
var ownState = []string{"raft/catalog", "gossip"}

// refuseForeign refuses a data folder with another system's state, beside which Corbel would begin as an empty cluster.
func refuseForeign(dir string) error {
	if dir == "" {
		return nil
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil
	}
	for _, own := range ownState {
		if there(own) {
			return nil
		}
	}
	for _, f := range foreignState {
		if there(f.file) {
			return fmt.Errorf("data_dir: %s holds the state of %s (%s), which Corbel does not read: it would begin with "+
				"nothing. Nothing was changed. Give Corbel an empty folder; to bring the state over, %s", dir, f.whose,
				f.file, f.how)
		}
	}
	return nil
}
