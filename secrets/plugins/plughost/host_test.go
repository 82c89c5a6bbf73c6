//go:build unix

package plughost

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/secrets/plugins"
	"corbel.dev/corbel/secrets/plugins/message"
)

// logged is a log that tests read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// rig is a folder with this binary as a plug-in, and a server of one map.
type rig struct {
	*Host
	dir   string
	log   logged
	entry plugins.Entry
	mu    sync.Mutex
	kept  map[string][]byte
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), kept: map[string][]byte{}}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "fake"), in, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(in)
	r.entry = plugins.Entry{Type: plugins.Secret, Name: "fake", Command: "fake", SHA256: hex.EncodeToString(sum[:])}
	r.Host, err = New(Config{Dir: r.dir, Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) serve(_ context.Context, method string, raw []byte) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch method {
	case message.StoragePut:
		var in message.StorageWrite
		err := message.Unmarshal(raw, &in)
		r.kept[in.Entry.Key] = in.Entry.Value
		return &message.StorageDone{}, err
	case message.StorageGet:
		var in message.StorageKey
		err := message.Unmarshal(raw, &in)
		return &message.StorageValue{Entry: &message.StorageEntry{Key: in.Key, Value: r.kept[in.Key]}}, err
	}
	return nil, errkind.New(errkind.NotFound, "no such service")
}

// start starts the plug-in, set up; it ends with the test.
func (r *rig) start(t *testing.T) plugins.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := r.Start(ctx, plugins.Launch{Entry: &r.entry, Mount: "x/", UUID: "uuid", Version: "1.0", Serve: r.serve})
	if err != nil {
		t.Fatal(err, r.log.String())
	}
	t.Cleanup(p.Kill)
	var done message.SetupReply
	if err := p.Call(ctx, message.Setup, &message.SetupArgs{Broker: p.Broker()}, &done); err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(ctx context.Context, p plugins.Process, op, path, data string) (*message.RequestReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply := &message.RequestReply{}
	err := p.Call(ctx, message.HandleRequest, &message.RequestArgs{Request: &message.Request{Operation: op, Path: path,
		Data: data}}, reply)
	return reply, err
}

// A plug-in is started, asked, reaches the storage of its server, and is gone after Kill with all that it had.
func TestThereAndBack(t *testing.T) {
	t.Setenv("CORBEL_SEAL_TOKEN", "secret")
	r := newRig(t)
	r.entry.Env = []string{"MINE=1"}
	p := r.start(t)
	if _, err := ask(t.Context(), p, "update", "a/b", `{"k":1}`); err != nil {
		t.Fatal(err)
	}
	if reply, err := ask(t.Context(), p, "read", "a/b", "{}"); err != nil || reply.Response.Data != `{"k":1}` {
		t.Fatal(err, reply)
	}
	reply, err := ask(t.Context(), p, "read", "env", "{}")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Env []string }
	if err := json.Unmarshal([]byte(reply.Response.Data), &got); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(got.Env, "\n"); strings.Contains(text, "SEAL_TOKEN") || !slices.Contains(got.Env, "MINE=1") ||
		!slices.Contains(got.Env, "VAULT_VERSION=1.0") {
		t.Errorf("environment: %s", text)
	}
	if _, err := ask(t.Context(), p, "read", "large", "{}"); !errkind.Is(err, errkind.TooLarge) {
		t.Error("a message that is too large:", err)
	}
	p.Kill()
	p.Kill()
	if id := (&program{ran: true, name: "x", ended: make(chan struct{})}).ID(); id == "" {
		t.Error("what ends at the moment is said never to have run: its connection would stay open")
	}
	select {
	case <-p.Ended():
	default:
		t.Error("it runs after Kill")
	}
	if _, err := os.Stat(p.(*process).tmp); !errors.Is(err, os.ErrNotExist) {
		t.Error("left behind:", p.(*process).tmp, err)
	}
	if text := r.log.String(); !strings.Contains(text, "the fake begins: none") || !strings.Contains(text, "level=WARN") {
		t.Error(text)
	}
}

// One that dies under a call is an error of it, at once; one that hangs is killed all the same.
func TestDiesAndHangs(t *testing.T) {
	r := newRig(t)
	p := r.start(t)
	if _, err := ask(t.Context(), p, "read", "die", "{}"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
	select {
	case <-p.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("its end is not noticed")
	}
	p = r.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, p, "read", "hang", "{}"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
	begin := time.Now()
	if p.Kill(); time.Since(begin) > 15*time.Second {
		t.Error("Kill took", time.Since(begin))
	}
}

// What it logs is bounded: a line in its length, lines in their number.
func TestLogIsBounded(t *testing.T) {
	r := newRig(t)
	p := r.start(t)
	if _, err := ask(t.Context(), p, "read", "shout", "{}"); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if n := len(r.log.String()); n > 2_000_000 || n < lineBytes {
		t.Errorf("%d bytes of log", n)
	}
}

// Programs that are no plug-ins, or do not speak in time, are errors, and gone.
func TestNoPlugin(t *testing.T) {
	r := newRig(t)
	r.entry.Env = []string{"FAKE=noise"}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if p, err := r.Start(ctx, plugins.Launch{Entry: &r.entry, Serve: r.serve}); err == nil {
		p.Kill()
		t.Error("no error")
	}
	listener, err := net.Listen("unix", filepath.Join(r.dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r.entry.Env = []string{"FAKE=silent", "FAKE_AT=" + listener.Addr().String()}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	started := make(chan error)
	go func() {
		p, err := r.Start(ctx, plugins.Launch{Entry: &r.entry, Serve: r.serve})
		if err == nil {
			p.Kill()
		}
		started <- err
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	up := make([]byte, 2)
	if _, err := io.ReadFull(conn, up); err != nil {
		t.Fatal(err)
	}
	cancel() // it runs, and says nothing
	if err := <-started; err == nil {
		t.Error("no error")
	}
	if n, err := conn.Read(up); err != io.EOF { // once nobody of the group has it open
		t.Errorf("the program, or what it started, is still there: %d, %v", n, err)
	}
}

// What is not to be run is refused with the reason, before anything is started.
func TestRefused(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(t.TempDir(), "outside")
	for path, mode := range map[string]os.FileMode{filepath.Join(r.dir, "wide"): 0o777,
		filepath.Join(r.dir, "plain"): 0o644, outside: 0o755} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(r.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"pipe": "no regular file",
		"wide":  "can be changed by its group or by everybody",
		"plain": "not executable", "link": "leads out of plugin_directory", "folder": "no regular file",
		"nothing": "no such file", "fake": "has the SHA-256"} {
		if err := r.Check(&plugins.Entry{Command: command, SHA256: strings.Repeat("0", 64)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := r.Check(&r.entry); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(&r.entry); err == nil {
		t.Error("a folder that everybody may change")
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(r.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(r.dir, "fake"), 12345, -1); err != nil {
			t.Fatal(err)
		}
		if err := r.Check(&r.entry); err == nil || !strings.Contains(err.Error(), "owned by the user") {
			t.Error(err)
		}
	}
	for _, dir := range []string{"relative", filepath.Join(r.dir, "missing"), outside} {
		if _, err := New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}); err == nil {
			t.Errorf("%s: no error", dir)
		}
	}
}

// What a server left that was killed goes when the next one starts; what another still uses stays.
func TestLeftOvers(t *testing.T) {
	r, tmp := newRig(t), t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, age := range map[string]time.Time{"plugin-old": long, "plugin-used": long, "plugin-new": time.Now(),
		"plugin-other": long, "else": long} {
		at := filepath.Join(tmp, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "plugin-other" {
			if err := os.WriteFile(filepath.Join(at, heldName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if name == "plugin-used" {
			lock, err := vfs.OS{}.Lock(filepath.Join(at, heldName))
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
		}
		if err := os.Chtimes(at, age, age); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Config{Dir: r.dir, Tmp: tmp, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, one := range left {
		names = append(names, one.Name())
	}
	if want := []string{"else", "plugin-new", "plugin-other", "plugin-used"}; !slices.Equal(names, want) {
		t.Errorf("left: %q, want %q", names, want)
	}
}
