package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedCommands takes every corbel command of the sh, console and text blocks in README.md, docs/*.md and
// docs/runbook/*.md, in the runbook also those within its sentences, and asks the binary for its help with just these
// flags: a command or a flag that does not exist fails.
func TestDocumentedCommands(t *testing.T) {
	root := filepath.Join("..", "..")
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
		lines := shellLines(string(text))
		if slices.Contains(runbook, page) {
			for _, m := range regexp.MustCompile("`(corbel [^`]+)`").FindAllStringSubmatch(string(text), -1) {
				lines = append(lines, m[1])
			}
		}
		for _, line := range lines {
			args := shellWords(line)
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
			out, err := exec.Command(filepath.Join(binDir, "corbel"), args[1:]...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Usage:") {
				t.Errorf("%s: %s: %v\n%.300s", filepath.Base(page), line, err, out)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were found: has the form of the pages changed?", seen)
	}
}

// TestCommandsAreDocumented: docs/cli.md has each command and each bench.
func TestCommandsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range [][]string{nil, {"bench"}} {
		help, err := exec.Command(filepath.Join(binDir, "corbel"), append(of, "--help")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := regexp.MustCompile(`(?m)^  ([a-z-]+)  +[A-Z]`).FindAllSubmatch(help, -1)
		if len(all) < 15 {
			t.Errorf("%v has only %d commands: has the form of the help changed?", of, len(all))
		}
		for _, m := range all {
			if !regexp.MustCompile("`" + string(m[1]) + "[ `]").Match(page) {
				t.Errorf("docs/cli.md lacks %v %s", of, m[1])
			}
		}
	}
}

// shellLines are the lines of all ```sh, ```console and ```text blocks.
func shellLines(page string) []string {
	var lines []string
	inside := false
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = slices.Contains([]string{"```sh", "```console", "```text"}, strings.TrimSpace(line))
		case inside:
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		}
	}
	return lines
}

// shellWords splits a line at spaces outside single quotes and ends at a comment, & or |.
func shellWords(line string) []string {
	var words []string
	word, quoted, has := "", false, false
	end := func() {
		if has {
			words = append(words, word)
		}
		word, has = "", false
	}
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, has = !quoted, true
		case quoted || !strings.ContainsRune(" #&|", r):
			word, has = word+string(r), true
		case r == ' ':
			end()
		case !has:
			return words
		default:
			word += string(r)
		}
	}
	end()
	return words
}
