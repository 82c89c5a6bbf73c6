package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/postgres"
)

// postgres starts a PostgreSQL of the lab's own, whose syncs b.syncs holds, and returns its URL. It ends with
// the environment.
func (b *environment) postgres(ctx context.Context) (string, error) {
	dir := filepath.Join(b.dir, "postgres")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(b.dir, 0o711)); err != nil {
		return "", err
	}
	server, err := postgres.Make(ctx, dir)
	if err != nil {
		return "", err
	}
	printed := &spawn.Tail{}
	server.Stdout, server.Stderr = printed, printed
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
	return postgres.URL(dir), postgres.Ready(ctx, nil, printed.String)
}

// secretsOnPostgres starts a server whose secrets lie in a PostgreSQL.
func secretsOnPostgres(ctx context.Context, b *environment) error {
	url, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	return b.withSecrets(ctx, fmt.Sprintf("storage \"postgresql\" { connection_url = %q }", url))
}

// slowPostgres makes each sync of the PostgreSQL take long; what is read is in its memory.
func slowPostgres(_ context.Context, b *environment) (string, error) {
	b.syncs.Delay(200 * time.Millisecond)
	return "disk under the postgresql storage of secrets", nil
}
