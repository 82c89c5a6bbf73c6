package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"corbel.dev/corbel/test/fetch"
)

func (r *runner) command(dir, name string, args ...string) *exec.Cmd {
	if r.verbose {
		fmt.Printf("    (%s) %s %s\n", r.rel(dir), name, strings.Join(args, " "))
	}
	cmd := exec.CommandContext(r.ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second // a grandchild may hold the pipe
	return cmd
}

// output returns what the command prints; an error quotes its error output.
func (r *runner) output(dir, name string, args ...string) (string, error) {
	cmd := r.command(dir, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}

// check runs a command that passes or fails as a whole.
func (r *runner) check(what, dir, name string, args ...string) {
	if _, err := r.output(dir, name, args...); err != nil {
		r.fail(what, err.Error())
		return
	}
	r.pass()
}

func (r *runner) cache(elem ...string) string {
	return filepath.Join(append([]string{r.root, ".cache"}, elem...)...)
}

func (r *runner) fetch() {
	for _, item := range fetch.Manifest {
		if _, err := (fetch.Fetcher{Dir: r.cache()}).Get(r.ctx, item.Name); err != nil {
			r.skip("fetch "+item.Name, err.Error())
			continue
		}
		r.pass()
	}
}

func (r *runner) gofmt() {
	var dirs []string
	entries, err := os.ReadDir(r.root)
	if err != nil {
		r.fail("gofmt", err.Error())
		return
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			dirs = append(dirs, e.Name())
		}
	}
	out, err := r.output(r.root, "gofmt", append([]string{"-l"}, dirs...)...)
	switch {
	case err != nil:
		r.fail("gofmt", err.Error())
	case out != "":
		r.fail("gofmt", "run gofmt -w on:\n"+out)
	default:
		r.pass()
	}
}

func (r *runner) build() {
	r.check("build", r.root, "go", "build", "-o", r.cache("bin", "corbel"), "./cmd/corbel")
}

// sources lists the modules that hold packages: tools has none of its own.
func (r *runner) sources() []string {
	var list []string
	for _, dir := range r.mods {
		if out, err := r.output(dir, "go", "list", "./..."); err != nil || strings.TrimSpace(out) != "" {
			list = append(list, dir) // with an error too: the step then reports it
		}
	}
	return list
}

func (r *runner) vet() {
	for _, dir := range r.sources() {
		r.check("vet "+r.rel(dir), dir, "go", "vet", "./...")
	}
}

// tool builds a program of the tools module into the cache.
func (r *runner) tool(name, pkg string) (string, error) {
	path := r.cache("bin", name)
	_, err := r.output(filepath.Join(r.root, "tools"), "go", "build", "-o", path, pkg)
	return path, err
}

func (r *runner) staticcheck() {
	path, err := r.tool("staticcheck", "honnef.co/go/tools/cmd/staticcheck")
	if err != nil {
		r.fail("staticcheck", err.Error())
		return
	}
	for _, dir := range r.sources() {
		r.check("staticcheck "+r.rel(dir), dir, path, "./...")
	}
}

// vulnerabilities found are exit code 3; other failures mean that it could not judge.
const vulnerableExit = 3

func (r *runner) govulncheck() {
	path, err := r.tool("govulncheck", "golang.org/x/vuln/cmd/govulncheck")
	if err != nil {
		r.fail("govulncheck", err.Error())
		return
	}
	cmd := r.command(r.root, path, "./cmd/...")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		r.pass()
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == vulnerableExit:
		r.fail("govulncheck", string(out))
	case unreachable(string(out)):
		r.skip("govulncheck", "its database cannot be reached: "+firstLine(string(out)))
	default:
		r.fail("govulncheck", string(out))
	}
}

func unreachable(out string) bool {
	for _, sign := range []string{"vuln.go.dev", "no such host", "dial tcp", "i/o timeout", "connection refused",
		"Forbidden"} {
		if strings.Contains(out, sign) {
			return true
		}
	}
	return false
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
