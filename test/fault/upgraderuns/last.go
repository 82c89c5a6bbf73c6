package upgraderuns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LastRelease is the commit that stands for the last release until one is published. It is the newest whose formats on
// disk and on the wire releases promise to read; raise it with each release. It must be 4cc2911a or later: leaders
// before that cut what they have begun when they end, so an upgrade from them has failed requests that are their own.
const LastRelease = "a7440e9d"

// FromEnv names another commit or tag to start from, and BinaryEnv the program itself.
const (
	FromEnv   = "CORBEL_UPGRADE_FROM"
	BinaryEnv = "CORBEL_UPGRADE_BIN"
)

// ErrNoHistory says that the source of the last release is not at hand: a shallow clone, or no repository.
var ErrNoHistory = errors.New("the last release's commit is not in this clone")

// Last builds the last release below dir, once for each commit, and returns its program.
func Last(ctx context.Context, dir string) (string, error) {
	if bin := os.Getenv(BinaryEnv); bin != "" {
		return filepath.Abs(bin)
	}
	from := os.Getenv(FromEnv)
	if from == "" {
		from = LastRelease
	}
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoHistory, err)
	}
	commit, err := output(ctx, root, "git", "rev-parse", "--verify", "--quiet", from+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, ErrNoHistory)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "corbel-"+commit)
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	source := filepath.Join(dir, "source-"+commit)
	if _, err := output(ctx, root, "git", "worktree", "add", "--force", "--detach", source, commit); err != nil {
		return "", err
	}
	_, err = output(ctx, source, "go", "build", "-trimpath", "-buildvcs=false", "-o", bin+".new", "./cmd/corbel")
	if err == nil {
		err = os.Rename(bin+".new", bin)
	}
	_, removal := output(ctx, root, "git", "worktree", "remove", "--force", source)
	return bin, errors.Join(err, removal)
}

// output runs a command and returns what it printed.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSpace(string(out)), nil
}
