package group

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// peersName is the file by which an operator says who the members are when the
// quorum is lost for ever: a list of {"id", "address", "non_voter"}.
const peersName = "peers.json"

// recoverCluster rewrites the membership as peers.json says, once, and renames the file.
func (in *instance) recoverCluster(logs raft.LogStore) error {
	g := in.g
	if g.cfg.InMemory {
		return nil
	}
	path := filepath.Join(g.cfg.Dir, peersName)
	data, err := vfs.ReadFile(g.cfg.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := parsePeers(data)
	if err != nil {
		return errkind.E(errkind.Invalid, path, err)
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	snapshot := in.stores.SnapshotIndex()
	g.cfg.Log.Warn("recovering with the members of peers.json: every entry of this server's log counts as committed, "+
		"also those that no quorum had; what other servers had acknowledged beyond the last index is lost",
		"file", path, "members", list, "snapshot_index", snapshot, "last_index", max(last, snapshot))
	if err := raft.RecoverCluster(in.config(), g.fsm, logs, in.guard, in.stores.Snaps, in.links.trans,
		raftdisk.Configuration(list)); err != nil {
		return errkind.E(errkind.Invalid, "recover with "+path, err)
	}
	if err := g.cfg.FS.Rename(path, path+".done"); err != nil {
		return err
	}
	return g.cfg.FS.SyncDir(g.cfg.Dir)
}

// parsePeers reads peers.json.
func parsePeers(data []byte) ([]Server, error) {
	var raw []struct {
		ID       string `json:"id"`
		Address  string `json:"address"`
		NonVoter bool   `json:"non_voter"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	var list []Server
	voters := 0
	for _, r := range raw {
		if r.ID == "" || r.Address == "" {
			return nil, errors.New("each member needs an id and an address")
		}
		if !r.NonVoter {
			voters++
		}
		list = append(list, Server{ID: r.ID, Address: r.Address, Voter: !r.NonVoter})
	}
	if voters == 0 {
		return nil, errors.New("there must be a voter")
	}
	return list, nil
}
