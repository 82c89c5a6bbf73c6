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
	facts := javaFacts(string(text))
	if facts == nil {
		return nil // as above
	}
	v.path, v.as, v.facts = path, info.ModTime(), facts
	return facts
}

// javaFacts reads the output of `java -version`: its version, its runtime and its machine, a line each, after lines
// about options of the environment or of another kind. It returns nil when none has the version.
func javaFacts(text string) map[string]string {
	var facts map[string]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch _, version, quoted := strings.Cut(line, ` version "`); {
		case line == "" || strings.Contains(line, "Picked up "):
		case facts == nil:
			if version, _, ended := strings.Cut(version, `"`); quoted && ended && version != "" {
				facts = map[string]string{"driver.java.version": version}
			}
		case facts["driver.java.runtime"] == "":
			facts["driver.java.runtime"] = line
		case facts["driver.java.vm"] == "":
			facts["driver.java.vm"] = line
		}
	}
	return facts
}
