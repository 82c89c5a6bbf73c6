package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/test/fetch"
)

// pasted are the pages with blocks that run.
var pasted = []struct {
	file  string
	hosts int
	envoy bool
	least int // commands that run
}{
	{file: "README.md", hosts: 1, envoy: true, least: 35},
	{file: "docs/getting-started.md", hosts: 1, least: 30},
	{file: "docs/mesh.md", hosts: 1, envoy: true, least: 15},
	{file: "docs/secrets.md", hosts: 1, least: 40},
	{file: "docs/cluster.md", hosts: 4, least: 25},
	{file: "docs/doctor.md", hosts: 1, least: 6},
	{file: "docs/backup.md", hosts: 1, least: 10},
	{file: "docs/usage.md", hosts: 1, least: 14},
}

// TestPages does what the pages for newcomers say, block by block, as if each was
// pasted into a terminal: on hosts of its own (namespaces of network, mounts and
// processes) with an empty HOME, with the ports of the page, and with nothing but
// the binary, bash and curl.
//
//   - A block ```sh runs in the page's terminal and must not fail. A block of one
//     command that stays in the foreground gets a terminal of its own, and so does the reader.
//   - In a block ```console what follows "$ " runs, and the other lines are what it prints, but for numbers.
//   - Another block whose first line is "# NAME.hcl" or "# NAME.yaml" is the file of that name.
//   - Everything else cannot run here (```text, ```hcl and so on), and the log says how many blocks that are.
func TestPages(t *testing.T) {
	if err := namespaces(); err != nil {
		loud.Skip(t, "%v", err)
	}
	for _, p := range pasted {
		t.Run(filepath.Base(p.file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", "..", p.file))
			if err != nil {
				t.Fatal(err)
			}
			bin := t.TempDir()
			link(t, filepath.Join(binDir, "corbel"), filepath.Join(bin, "corbel"))
			if p.envoy {
				link(t, fetch.Need(t, "envoy"), filepath.Join(bin, "envoy"))
			}
			desk := newDesk(t, bin, p.hosts)
			ran, left := 0, map[string]int{}
			for _, b := range blocksOf(string(text)) {
				switch {
				case b.fence == "sh" || b.fence == "console":
					ran += desk.paste(b)
				case b.name() != "":
					desk.write(b.name(), b.text)
				default:
					left[b.fence]++
				}
			}
			t.Logf("%d commands ran; blocks that are not for a terminal: %v", ran, left)
			if ran < p.least {
				t.Errorf("only %d commands ran, not %d: has the form of the page changed?", ran, p.least)
			}
		})
	}
}

// TestAllBlocksArePasted: a page whose blocks say that they run is one that a test runs.
func TestAllBlocksArePasted(t *testing.T) {
	root := filepath.Join("..", "..")
	tried := map[string]bool{"docs/extensions.md": true} // TestExtensions
	for _, p := range pasted {
		tried[p.file] = true
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/runbook/*.md", "docs/compat/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(root, file)
			for _, b := range blocksOf(string(text)) {
				if (b.fence == "sh" || b.fence == "console") && !tried[filepath.ToSlash(name)] {
					t.Errorf("%s:%d: nothing runs this block: add the page to pasted, or make it ```text", name, b.line)
				}
			}
		}
	}
}

func link(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}

// snippet is one fenced part of a page.
type snippet struct {
	line  int
	fence string
	text  string
}

var (
	fenced   = regexp.MustCompile("^( *)```([a-z]*)$")
	fileName = regexp.MustCompile(`^# ([\w./~-]+\.(?:hcl|yaml|json))\b`)
	// stays are the commands that hold their terminal until they are told to end.
	stays = regexp.MustCompile(
		`^(?:ssh \S+ )?corbel (dev|server|agent|connect (envoy|proxy)|monitor|monitor-agent)\b|^corbel .* --(watch|follow)\b`)
	// comesBack are those of them that give the terminal back.
	comesBack = regexp.MustCompile(`(&|--bootstrap|--print)( *#.*)?$`)
	// shown are the words of output that are the same each time.
	shown = regexp.MustCompile(`^[A-Za-z][A-Za-z:/._=-]*$`)
)

// blocksOf are a page's blocks in their order.
func blocksOf(page string) []snippet {
	var all []snippet
	var open *snippet
	indent := ""
	for i, line := range strings.Split(page, "\n") {
		m := fenced.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, indent = &snippet{line: i + 2, fence: m[2]}, m[1]
		case open != nil && m != nil:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return all
}

// name is the file that the block is, if it is one.
func (b snippet) name() string {
	if m := fileName.FindStringSubmatch(b.text); m != nil {
		return m[1]
	}
	return ""
}

// stay is the command of a block that holds a terminal.
func (b snippet) stay() bool {
	var commands []string
	for line := range strings.SplitSeq(strings.TrimSpace(b.text), "\n") {
		if !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return len(commands) == 1 && stays.MatchString(commands[0]) && !comesBack.MatchString(commands[0])
}

// script is what of the block is typed, and the output that it shows.
func (b snippet) script() (typed string, output []string) {
	if b.fence != "console" {
		return b.text, nil
	}
	for line := range strings.SplitSeq(strings.TrimSpace(b.text), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed += command + "\n"
		} else {
			output = append(output, line)
		}
	}
	return typed, output
}

// commands counts the lines of a script that begin a command.
func commands(script string) int {
	n := 0
	for line := range strings.SplitSeq(script, "\n") {
		if line != "" && line[0] != ' ' && line[0] != '#' {
			n++
		}
	}
	return n
}

// alike says which line of the page's output the real one lacks: each line must
// be there with all its words that have no digits, in their order.
func alike(want []string, got string) error {
	for _, line := range want {
		var words []string
		for word := range strings.FieldsSeq(line) {
			if shown.MatchString(word) {
				words = append(words, regexp.QuoteMeta(word))
			}
		}
		if line != "..." && !regexp.MustCompile(strings.Join(words, ".*")).MatchString(got) {
			return fmt.Errorf("the page shows %q", line)
		}
	}
	return nil
}
