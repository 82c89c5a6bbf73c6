// Package postgres runs a real PostgreSQL beside what is tested or measured: a server of the distribution's in a
// folder of its own, behind a socket there, with its defaults: a commit is fsynced before it is answered.
package postgres

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

// Bin finds the folder of initdb and postgres: CORBEL_TEST_PG, PATH, else where distributions put them.
func Bin() (string, error) {
	places := []string{os.Getenv("CORBEL_TEST_PG")}
	if path, err := exec.LookPath("initdb"); err == nil {
		places = append(places, filepath.Dir(path))
	}
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is sound
	slices.Reverse(packaged)
	for _, dir := range append(places, packaged...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); dir != "" && err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL: install it, or put the folder of initdb and postgres in PATH")
}

// startLimit bounds the making of the databases, and the server's start.
const startLimit = 2 * time.Minute

// Make makes an empty database in dir and returns the command that serves it. PostgreSQL refuses to be root: then it
// is another user, who gets dir.
func Make(ctx context.Context, dir string) (*exec.Cmd, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	attr := spawn.DieWithParent()
	if os.Getuid() == 0 {
		uid, gid, err := hostinfo.PostgresUser()
		if err != nil {
			return nil, err
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		attr = as(attr, uid, gid)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "corbel", "--auth=trust", "-E",
		"UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c",
		"port=5432", "-c", "max_connections=200")
	server.Dir, server.SysProcAttr = dir, attr
	return server, nil
}

// URL is where clients find the server of a folder: its socket.
func URL(dir string) string {
	return "postgres://corbel@/postgres?sslmode=disable&host=" + strings.ReplaceAll(dir, "/", "%2F")
}

// Ready waits until what a server printed says that it takes connections. ended is closed when it has ended.
func Ready(ctx context.Context, ended <-chan struct{}, printed func() string) error {
	return spawn.Until(ctx, startLimit, "PostgreSQL to take connections", func() error {
		text := printed()
		if strings.Contains(text, "ready to accept connections") { // in the language of --locale=C
			return nil
		}
		select {
		case <-ended:
			return spawn.Hopeless(fmt.Errorf("postgres ended at once:\n%s", text))
		default:
			return errors.New(text)
		}
	})
}

// Server is a PostgreSQL of a run's own.
type Server struct {
	*spawn.Process
	dir string
}

// Start makes an empty database and starts its server; Remove ends it.
func Start(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("/tmp", "corbel-pg-") // a socket's path is short
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	cmd, err := Make(ctx, dir)
	if err == nil {
		s.Process, err = spawn.Run(cmd)
	}
	if err == nil {
		err = Ready(ctx, s.Ended(), s.Log)
	}
	if err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// URL is where clients find it.
func (s *Server) URL() string { return URL(s.dir) }

// Remove ends the server at once (its clients are gone) and removes its folder.
func (s *Server) Remove() {
	if s.Process != nil {
		_ = s.End(syscall.SIGINT, time.Minute) // a fast, orderly end
	}
	_ = os.RemoveAll(s.dir)
}
