package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/test/cmdline"
)

// called is what a whole command line ends with and says, in this process: a page has hundreds of them.
func called(args []string) (code int, out string) {
	var b bytes.Buffer
	e := &command.Env{In: strings.NewReader(""), Out: &b, Err: &b, Getenv: func(string) string { return "" }}
	return dispatch(context.Background(), e, args), b.String()
}

// TestDocumentedCommands takes every corbel command of the sh, console and text blocks in README.md, docs/*.md and
// docs/runbook/*.md, in the runbook also those within its sentences, and asks for its help with just these flags: a
// command or a flag that does not exist fails.
func TestDocumentedCommands(t *testing.T) {
	root := ".."
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := filepath.Glob(filepath.Join(root, "docs", "runbook", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, runbook...)
	seen := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := cmdline.Lines(string(text))
		if slices.Contains(runbook, page) {
			for _, m := range regexp.MustCompile("`(corbel [^`]+)`").FindAllStringSubmatch(string(text), -1) {
				lines = append(lines, m[1])
			}
		}
		for _, line := range lines {
			args := cmdline.Words(line)
			if len(args) == 0 || args[0] != "corbel" {
				continue
			}
			seen++
			at := len(args)
			switch {
			case args[1] == "lock" || args[1] == "watch":
				at = 2 // what follows belongs to the child
			case args[1] == "allocs" && args[2] == "exec":
				at = 3
			}
			args = append(args[:at:at], append([]string{"--help"}, args[at:]...)...)
			if code, out := called(args); code != 0 || !strings.Contains(out, "Usage:") {
				t.Errorf("%s: %s: code %d\n%.300s", filepath.Base(page), line, code, out)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were found: has the form of the pages changed?", seen)
	}
}

// TestCommandsAreDocumented: docs/cli.md has each command and each bench.
func TestCommandsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range [][]string{nil, {"bench"}} {
		code, help := called(slices.Concat([]string{"corbel"}, of, []string{"--help"}))
		if code != 0 {
			t.Fatalf("code %d: %s", code, help)
		}
		all := regexp.MustCompile(`(?m)^  ([a-z-]+)  +[A-Z]`).FindAllStringSubmatch(help, -1)
		if len(all) < 15 {
			t.Errorf("%v has only %d commands: has the form of the help changed?", of, len(all))
		}
		for _, m := range all {
			if !regexp.MustCompile("`" + m[1] + "[ `]").Match(page) {
				t.Errorf("docs/cli.md lacks %v %s", of, m[1])
			}
		}
	}
}
