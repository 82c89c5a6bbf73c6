//go:build unix

// Package pgtest runs a real PostgreSQL for tests: a server of the distribution's in a folder of its own.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/polltest"
)

// Server is a real PostgreSQL of this test run, behind a socket in its own folder.
type Server struct {
	bin, dir string
	uid, gid int // who runs it; PostgreSQL refuses to be root
	cmd      *exec.Cmd
	exited   chan struct{}
}

// Bin finds the folder of initdb and postgres: CORBEL_TEST_PG, PATH, the distribution's.
func Bin() (string, error) {
	places := []string{}
	if dir := os.Getenv("CORBEL_TEST_PG"); dir != "" {
		places = append(places, dir)
	}
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
	return "", errors.New("no PostgreSQL: install the package postgresql, or name a folder with initdb and postgres in " +
		"CORBEL_TEST_PG")
}

// New makes a cluster of databases and starts its server.
func New() (*Server, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "corbel-pg-") // a socket's path is short
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, uid: os.Getuid(), gid: os.Getgid()}
	if s.uid == 0 {
		for _, name := range []string{"postgres", "nobody"} {
			if u, err := user.Lookup(name); err == nil {
				s.uid, _ = strconv.Atoi(u.Uid) // numbers on every Unix
				s.gid, _ = strconv.Atoi(u.Gid)
				break
			}
		}
		if err := os.Chown(dir, s.uid, s.gid); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := s.command(ctx, "initdb", "-D", dir+"/data", "-U", "corbel", "--auth=trust", "-E", "UTF8", "--locale=C",
		"--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.Start()
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}}
	}
	return cmd
}

// Start starts the server and returns when it takes connections. After a SIGKILL the children of the one before may
// still be on their way out; it is tried again until they are gone.
func (s *Server) Start() error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(polltest.Deadline); ; <-tick.C {
		err := s.start()
		if !errors.Is(err, errEnded) || time.Now().After(end) {
			return err
		}
	}
}

// errEnded says that a server ended before it took a connection.
var errEnded = errors.New("postgres ended at once")

func (s *Server) start() error {
	s.cmd = s.command(context.Background(), "postgres", "-D", s.dir+"/data", "-k", s.dir, "-c", "listen_addresses=", "-c",
		"port=5432", "-c", "max_connections=200")
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.exited = make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(polltest.Deadline); ; <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			_ = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("%w:\n%s", errEnded, text)
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("postgres takes no connection: %w", err)
		}
	}
}

// Freeze stops the server and all that serve its connections in their tracks; Thaw lets them go on. Linux alone.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(how syscall.Signal) error {
	pid := s.cmd.Process.Pid
	if err := s.cmd.Process.Signal(how); err != nil { // first: it starts no more of them
		return err
	}
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil || len(all) == 0 {
		return errors.Join(errors.New("pgtest: no /proc to find the server's children in"), err)
	}
	for _, name := range all {
		text, _ := os.ReadFile(name) // it may have ended
		if !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(child, how); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Texts asks the server, as the superuser, and returns the first column of what it answers.
func (s *Server) Texts(ctx context.Context, sql string) ([]string, error) {
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Stop ends the server: SIGINT is an orderly end, SIGQUIT one without a checkpoint, SIGKILL a crash of the first
// process, whose children end when they notice.
func (s *Server) Stop(how syscall.Signal) {
	_ = s.cmd.Process.Signal(how) // it may have ended
	timer := time.NewTimer(polltest.Deadline)
	defer timer.Stop()
	select {
	case <-s.exited:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// URL is how to connect as the superuser; schema "" is the default.
func (s *Server) URL(schema string) string {
	url := fmt.Sprintf("host=%s port=5432 user=corbel dbname=postgres", s.dir)
	if schema != "" {
		url += " search_path=" + schema
	}
	return url
}

// Remove ends the server and takes its folder away.
func (s *Server) Remove() {
	s.Stop(syscall.SIGINT)
	_ = os.RemoveAll(s.dir)
}
