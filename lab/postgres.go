package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/hostinfo"
	"corbel.dev/corbel/kit/spawn"
)

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
	return "", errors.New("this scenario needs PostgreSQL: install it, or put the folder of initdb and postgres in PATH")
}

// postgres starts a PostgreSQL of the lab's own, whose syncs b.syncs holds, and returns its URL. It ends with the bed.
func (b *bed) postgres(ctx context.Context) (string, error) {
	bin, err := postgresBin()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, "postgres")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	attr := spawn.DieWithParent()
	if os.Getuid() == 0 { // which PostgreSQL refuses to be
		uid, gid, err := hostinfo.PostgresUser()
		if err != nil {
			return "", err
		}
		if err := errors.Join(os.Chmod(b.dir, 0o711), os.Chown(dir, uid, gid)); err != nil {
			return "", err
		}
		attr = asUser(attr, uid, gid)
	}
	data := filepath.Join(dir, "data")
	within, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	initdb := exec.CommandContext(within, filepath.Join(bin, "initdb"), "-D", data, "-U", "corbel", "--auth=trust", "-E",
		"UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	printed := &spawn.Tail{}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c",
		"max_connections=100")
	server.Dir, server.SysProcAttr, server.Stdout, server.Stderr = dir, attr, printed, printed
	held, done, err := startSlowable(server)
	if err != nil {
		return "", err
	}
	b.syncs = held
	b.endOutside = sync.OnceFunc(func() {
		held.Delay(0)
		_ = server.Process.Signal(syscall.SIGINT) // a fast, orderly end
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = server.Process.Kill()
			<-done
		}
		held.Close()
	})
	b.later(b.endOutside)
	for !strings.Contains(printed.String(), "ready to accept connections") { // in the language of --locale=C
		if err := sleep(within, 50*time.Millisecond); err != nil {
			return "", fmt.Errorf("postgres takes no connection: %w\n%s", err, printed)
		}
	}
	return "postgres://corbel@/postgres?sslmode=disable&host=" + strings.ReplaceAll(dir, "/", "%2F"), nil
}

// secretsOnPostgres starts a server whose secrets lie in a PostgreSQL.
func secretsOnPostgres(ctx context.Context, b *bed) error {
	url, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	return b.withSecrets(ctx, fmt.Sprintf("storage \"postgresql\" { connection_url = %q }", url))
}

// slowPostgres makes each sync of the PostgreSQL take long; what is read is in its memory.
func slowPostgres(_ context.Context, b *bed) (string, error) {
	b.syncs.Delay(200 * time.Millisecond)
	return "disk under the postgresql storage of secrets", nil
}
