//go:build linux

package execdriver

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestJavaFacts: java's own words become attributes by which jobs choose nodes.
func TestJavaFacts(t *testing.T) {
	for _, test := range []struct{ text, version, runtime, vm string }{
		{"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n" +
			"OpenJDK 64-Bit Server VM (build 17.0.15+6, mixed mode)\n", "17.0.15",
			"OpenJDK Runtime Environment (build 17.0.15+6)", "OpenJDK 64-Bit Server VM (build 17.0.15+6, mixed mode)"},
		{"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\r\njava version \"1.8.0_292\"\r\nJava(TM) SE Runtime Environment\r\n",
			"1.8.0_292", "Java(TM) SE Runtime Environment", ""},
		{"NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\nopenjdk version \"21.0.2\" 2024-01-16\nOpenJDK Runtime Environment\n",
			"21.0.2", "OpenJDK Runtime Environment", ""},
		{"OpenJDK 64-Bit Server VM warning: an option was ignored\nopenjdk version \"17.0.1\"\n", "17.0.1", "", ""},
		{"no such thing", "", "", ""},
		{"java version \"17", "", "", ""},
		{"", "", "", ""},
	} {
		want := map[string]string{}
		for name, value := range map[string]string{"driver.java.version": test.version, "driver.java.runtime": test.runtime,
			"driver.java.vm": test.vm} {
			if value != "" {
				want[name] = value
			}
		}
		if got := javaFacts(test.text); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", test.text, got, want)
		}
	}
}

// TestJavaIsAskedOnce: it takes a moment to start, so it is asked again only once it is another one.
func TestJavaIsAskedOnce(t *testing.T) {
	dir := t.TempDir()
	path, asked := filepath.Join(dir, "java"), filepath.Join(dir, "asked")
	install := func(version string, at time.Time) {
		t.Helper()
		script := "#!/bin/sh\necho x >>" + asked + "\necho 'openjdk version \"" + version + "\"' >&2\n"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	var v virtualMachine
	at := time.Unix(1_000_000, 0)
	for i, version := range []string{"17.0.1", "21.0.2"} {
		install(version, at.Add(time.Duration(i)*time.Second))
		for range 3 {
			if got := v.look(t.Context(), path)["driver.java.version"]; got != version {
				t.Errorf("java %s says %q", version, got)
			}
		}
	}
	if text, err := os.ReadFile(asked); err != nil || string(text) != "x\nx\n" {
		t.Errorf("java was asked %q: %v", text, err)
	}
	if got := v.look(t.Context(), filepath.Join(dir, "none")); got != nil {
		t.Errorf("no java says %v", got)
	}
}

// TestJavaIsAskedAgain: what it said is kept only where it was understood.
func TestJavaIsAskedAgain(t *testing.T) {
	dir := t.TempDir()
	path, text := filepath.Join(dir, "java"), filepath.Join(dir, "text")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncat "+text+" >&2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var v virtualMachine
	for _, test := range []struct{ text, want string }{{"not now\n", ""}, {"openjdk version \"17.0.1\"\n", "17.0.1"}} {
		if err := os.WriteFile(text, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := v.look(t.Context(), path)["driver.java.version"]; got != test.want {
			t.Errorf("java that says %q has version %q", test.text, got)
		}
	}
}
