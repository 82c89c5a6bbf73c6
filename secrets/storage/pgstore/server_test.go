//go:build unix

package pgstore

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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

// server is a real PostgreSQL of this test run, behind a socket in its own folder.
type server struct {
	bin, dir string
	uid, gid int // who runs it; PostgreSQL refuses to be root
	cmd      *exec.Cmd
	exited   chan struct{}
}

var (
	shared     *server
	sharedErr  error
	sharedOnce sync.Once
	schemas    atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.stop(syscall.SIGINT)
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// postgresBin finds the folder of initdb and postgres: CORBEL_TEST_PG, PATH, the distribution's.
func postgresBin() (string, error) {
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
	return "", errors.New("no PostgreSQL: install the package postgresql, or name a folder with initdb and postgres in CORBEL_TEST_PG")
}

// newServer makes a cluster of databases and starts its server.
func newServer() (*server, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "corbel-pg-") // a socket's path is short
	if err != nil {
		return nil, err
	}
	s := &server{bin: bin, dir: dir, uid: os.Getuid(), gid: os.Getgid()}
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
	if out, err := s.command(ctx, "initdb", "-D", dir+"/data", "-U", "corbel", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.start()
}

func (s *server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}}
	}
	return cmd
}

// start starts the server and returns when it takes connections.
func (s *server) start() error {
	s.cmd = s.command(context.Background(), "postgres", "-D", s.dir+"/data", "-k", s.dir, "-c", "listen_addresses=", "-c", "port=5432", "-c", "max_connections=200")
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
		conn, err := pgx.Connect(ctx, s.url(""))
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
			return fmt.Errorf("postgres ended at once:\n%s", text)
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("postgres takes no connection: %w", err)
		}
	}
}

// stop ends the server: SIGINT is an orderly end, SIGQUIT one without a checkpoint, as after a crash.
func (s *server) stop(how syscall.Signal) {
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

func (s *server) url(schema string) string {
	url := fmt.Sprintf("host=%s port=5432 user=corbel dbname=postgres", s.dir)
	if schema != "" {
		url += " search_path=" + schema
	}
	return url
}

// schema gives a URL whose tables are in a fresh schema of the shared server.
func schema(t testing.TB) string {
	t.Helper()
	if _, err := postgresBin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	sharedOnce.Do(func() { shared, sharedErr = newServer() })
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return schemaOf(t, shared)
}

func schemaOf(t testing.TB, s *server) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	name := fmt.Sprint("test", schemas.Add(1))
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}
