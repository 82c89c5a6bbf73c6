package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/spawn"
)

// postgres is a PostgreSQL server of the bench's own, in a folder of its own, with its
// defaults: a commit is fsynced before it is answered.
type postgres struct {
	*process
	dir string
}

// postgresBin finds initdb and postgres: PATH, else where distributions put them.
func postgresBin() (string, error) {
	var places []string
	if path, err := exec.LookPath("initdb"); err == nil {
		places = append(places, filepath.Dir(path))
	}
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is sound
	slices.Reverse(packaged)
	for _, dir := range append(places, packaged...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL: install it, or put the folder of initdb and postgres in PATH")
}

// startPostgres makes an empty database and starts its server; stop ends it.
func startPostgres(ctx context.Context) (*postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "corbel-pg-")
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir}
	if err := p.start(ctx, bin); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *postgres) start(ctx context.Context, bin string) error {
	attr := spawn.DieWithParent()
	if os.Getuid() == 0 { // which PostgreSQL refuses to be
		uid, gid, err := hostinfo.PostgresUser()
		if err != nil {
			return err
		}
		if err := os.Chown(p.dir, uid, gid); err != nil {
			return err
		}
		if attr == nil {
			attr = &syscall.SysProcAttr{}
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(p.dir, "data")
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	initdb := exec.CommandContext(within, filepath.Join(bin, "initdb"), "-D", data, "-U", "corbel", "--auth=trust", "-E",
		"UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = p.dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	server := newProcess(filepath.Join(bin, "postgres"), []string{"-D", data, "-k", p.dir, "-c", "listen_addresses=", "-c",
		"max_connections=200"}, p.dir, nil)
	server.cmd.SysProcAttr = attr
	if err := server.start(); err != nil {
		return err
	}
	p.process = server
	for {
		if strings.Contains(server.tail.String(), "ready to accept connections") { // in the language of --locale=C
			return nil
		}
		select {
		case <-server.done:
			return fmt.Errorf("postgres ended at once: %w\n%s", server.err, server.tail)
		case <-within.Done():
			return fmt.Errorf("postgres takes no connection: %w\n%s", within.Err(), server.tail)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// url is where clients find it: its socket.
func (p *postgres) url() string {
	return "postgres://corbel@/postgres?sslmode=disable&host=" + strings.ReplaceAll(p.dir, "/", "%2F")
}

// stop ends the server at once (its clients are gone) and removes its folder.
func (p *postgres) stop() {
	if p.process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGINT) // a fast, orderly end
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			p.kill()
		}
	}
	_ = os.RemoveAll(p.dir)
}
