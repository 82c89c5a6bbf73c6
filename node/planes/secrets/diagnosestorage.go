package secretsplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/diagnosis"
	"corbel.dev/corbel/node/vaultconf"
)

// diskPaths are where a server writes.
func diskPaths(cfg *vaultconf.Config) (list []string) {
	if cfg == nil {
		return []string{"/"}
	}
	if dir := storageDir(cfg); dir != "" {
		list = append(list, dir)
	}
	for _, path := range []string{cfg.LogFile, cfg.AuditDir} {
		if path != "" {
			list = append(list, path)
		}
	}
	for _, a := range cfg.Audits {
		if path := a.Options["file_path"]; filepath.IsAbs(path) {
			list = append(list, path)
		}
	}
	if list == nil {
		list = []string{"/"}
	}
	return list
}

// storageDir is the folder of a storage that has one. It leaves the key to be read.
func storageDir(cfg *vaultconf.Config) string {
	if t := cfg.Storage.Type; t != "raft" && t != "file" {
		return ""
	}
	return cfg.Storage.Keys.Peek("path")
}

// existing is a path, or the nearest folder above it that is there.
func existing(path string) string {
	for {
		_, err := os.Stat(path)
		above := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || above == path {
			return path
		}
		path = above
	}
}

func (d *vaultDiagnosis) checkStorage(ctx context.Context) *diagnosis.Check {
	b := d.cfg.Storage
	c := diagnosis.New("Check Storage", "%s", b.Type)
	const create = "Create Storage Backend"
	var look func(context.Context) (string, error)
	dir := storageDir(d.cfg)
	var err error
	switch remote := secretsRemotes[b.Type]; {
	case remote != nil:
		var r remoteStorage
		if r, err = remote(d.host(), b.Keys); err == nil {
			look = r.look
			if r.drop != nil {
				defer r.drop()
			}
		}
	case secretsBackends[b.Type] == nil:
		err = unknownStorage(b.Type)
	default:
		err = readLocal(d.host(), b)
	}
	if err = errors.Join(err, b.Keys.Err()); err != nil {
		return c.Add(diagnosis.Failed(create, err))
	}
	b.Keys.Done()
	c.Add(diagnosis.New(create, ""))
	switch {
	case look != nil:
		c.Add(timed(func() *diagnosis.Check { return checkAccess(ctx, look) }))
	case dir != "":
		c.Add(d.checkFolder(dir)...)
	}
	return c
}

// readLocal reads the keys of a storage that this host has, as opening it would.
func readLocal(h *secretsHost, b vaultconf.Block) (err error) {
	switch b.Type {
	case "raft":
		if b.Keys.String("path", "") == "" {
			return errors.New("path: is missing")
		}
		_, _, err = readRaft(h, b.Keys)
	case "file":
		b.Keys.Ignore("max_parallel")
		if b.Keys.String("path", "") == "" {
			return errors.New("path: is missing")
		}
	default:
		_, err = openMemory(h, b.Keys)
	}
	return err
}

func checkAccess(ctx context.Context, look func(context.Context) (string, error)) *diagnosis.Check {
	const name = "Check Storage Access"
	ctx, cancel := context.WithTimeout(ctx, diagnoseWithin)
	defer cancel()
	start := time.Now()
	said, err := look(ctx)
	if err != nil {
		return diagnosis.Failed(name, err)
	}
	c := diagnosis.New(name, "it can be reached and read. %s", said)
	if took := time.Since(start); took > time.Second {
		return c.As(diagnosis.Warn).Advise("It took %s to answer: each write waits for it.", took.Round(time.Millisecond))
	}
	return c
}

// checkFolder judges the folder of a storage: who may use it, and whether a server does.
func (d *vaultDiagnosis) checkFolder(dir string) (list []*diagnosis.Check) {
	entry, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := existing(dir)
		if !mayWrite(above) {
			return append(list, diagnosis.Failed("Check Folder Permissions",
				fmt.Errorf("%s is not there and cannot be made in %s", dir, above)))
		}
		return append(list, diagnosis.New("Check Folder Permissions", "%s is not there.",
			dir).As(diagnosis.Warn).Advise(
			"The first start makes it. If this server has run before, its records are elsewhere."))
	case err != nil:
		return append(list, diagnosis.Failed("Check Folder Permissions", err))
	}
	st, err := os.Stat(dir)
	if err != nil {
		return append(list, diagnosis.Failed("Check Folder Permissions", err))
	}
	list = append(list, diagnosis.Folder(dir, st.Mode(), entry.Mode()&fs.ModeSymlink != 0, mayWrite(dir)))
	if ofRoot(st) && os.Geteuid() != 0 {
		list = append(list, diagnosis.New("Check Folder Ownership", "%s belongs to root.",
			dir).As(diagnosis.Warn).Advise("Give it to the server's user: it need not be root."))
	}
	const name = "Check Storage Lock"
	held, err := vfs.OS{}.Locked(filepath.Join(dir, "lock"))
	switch {
	case err != nil:
		list = append(list, diagnosis.Failed(name, err))
	case held && d.running:
		list = append(list, diagnosis.New(name, "the running server has it."))
	case held:
		list = append(list, diagnosis.New(name,
			"another process has it, and no server answers at the listeners.").As(diagnosis.Warn).Advise(
			"A server does not start while another one, or operator migrate, runs on the folder."))
	default:
		list = append(list, diagnosis.New(name, "nobody has it."))
	}
	return list
}
