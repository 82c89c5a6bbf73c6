//go:build linux

package execdriver

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// virtualMachine is what java said of itself. It is asked again when its file is another one: it takes a moment to
// start, and nodes look at their drivers again and again.
type virtualMachine struct {
	mu    sync.Mutex // guards what follows; one asks at a time
	path  string
	as    time.Time // when the file was changed
	facts map[string]string
}

// javaWithin bounds how long java may take to say what it is.
const javaWithin = 5 * time.Second

// look returns java's attributes, none of them when it does not say.
func (v *virtualMachine) look(ctx context.Context, path string) map[string]string {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.path == path && v.as.Equal(info.ModTime()) {
		return v.facts
	}
	ctx, cancel := context.WithTimeout(ctx, javaWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-version")
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil // it is asked again with the next look
	}
	v.path, v.as, v.facts = path, info.ModTime(), javaFacts(string(text))
	return v.facts
}

// javaFacts reads the output of `java -version`: its version, its runtime and its machine, a line each.
func javaFacts(text string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch _, version, quoted := strings.Cut(line, ` version "`); {
		case line == "" || strings.HasPrefix(line, "Picked up "): // options of the environment
		case facts["driver.java.version"] == "":
			version, _, ended := strings.Cut(version, `"`)
			if !quoted || !ended {
				return nil // not the output that we know
			}
			facts["driver.java.version"] = version
		case facts["driver.java.runtime"] == "":
			facts["driver.java.runtime"] = line
		case facts["driver.java.vm"] == "":
			facts["driver.java.vm"] = line
		}
	}
	return facts
}
