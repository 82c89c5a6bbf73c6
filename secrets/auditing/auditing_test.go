package auditing

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/audit"
	"corbel.dev/corbel/secrets/tables/tablestest"
	"corbel.dev/corbel/secrets/task"
)

// Without a device nothing is recorded. With one, requests and answers are; where it takes nothing, neither counts.
func TestRequestsAndAnswersAreRecorded(t *testing.T) {
	d, folder := tablestest.New(t), t.TempDir()
	b := New(Config{Rules: audit.Rules{Folder: folder}, Now: d.Now, Log: slog.New(slog.DiscardHandler)}, d.Gate, d.Store)
	denied := errors.New("denied")
	if recorded, err := b.Request(t.Context(), d.Task(secrets.Read, "cubbyhole/a", ""), denied); !recorded ||
		err != denied {
		t.Errorf("without a device: %t, %v", recorded, err)
	}
	ask := func(op secrets.Operation, path, body string) {
		t.Helper()
		if _, err := d.Ask(t.Context(), b.Rows(), op, path, body); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "log")
	ask(secrets.Update, "audit/file", `{"type":"file","options":{"file_path":"`+file+`"}}`)
	t.Cleanup(func() {
		if st := d.Gate.Load(); st != nil {
			Close(st.Audits)
		}
	})
	one := d.Task(secrets.Read, "cubbyhole/a", "")
	if recorded, err := b.Request(t.Context(), one, nil); !recorded || err != nil {
		t.Errorf("a request: %t, %v", recorded, err)
	}
	reply := &task.Reply{Response: &secrets.Response{Data: []byte(`{"a":"planted"}`)}, Mount: one.Entry}
	if err := b.Answer(t.Context(), one, reply, nil); err != nil {
		t.Errorf("an answer: %v", err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), `"path":"cubbyhole/a"`) != 2 || strings.Contains(string(text),
		"planted") {
		t.Errorf("recorded: %s, %v", text, err)
	}
	Close(d.Gate.Load().Audits) // and nobody put others in their place
	if recorded, err := b.Request(t.Context(), one, nil); recorded || err == nil {
		t.Errorf("with a device that is closed: %t, %v", recorded, err)
	}
	ask(secrets.Delete, "audit/file", "")
	if err := b.Answer(t.Context(), one, reply, nil); err != nil {
		t.Errorf("once there is no device: %v", err)
	}
}

// Devices that the configuration declares come, stay open while they are the same, and go.
func TestRedeclare(t *testing.T) {
	d, folder := tablestest.New(t), t.TempDir()
	b := New(Config{Rules: audit.Rules{Folder: folder}, Now: d.Now, Log: slog.New(slog.DiscardHandler)}, d.Gate, d.Store)
	declare := func(paths ...string) []*audit.Device {
		t.Helper()
		var list []audit.Config
		for _, path := range paths {
			list = append(list, audit.Config{Path: path, Type: "file",
				Options: map[string]string{"file_path": filepath.Join(folder, strings.Trim(path, "/"))}})
		}
		if err := b.Redeclare(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return d.Gate.Load().Audits
	}
	first := declare("a/")
	both := declare("a/", "b/")
	if len(first) != 1 || len(both) != 2 || (both[0] != first[0] && both[1] != first[0]) {
		t.Errorf("the first device did not stay open: %v, %v", first, both)
	}
	if left := declare(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
