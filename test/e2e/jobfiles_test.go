package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// jobFiles are job files of the shapes that fleets have.
var jobFiles = filepath.Join("..", "..", "jobs", "spec", "testdata", "files")

// jobsDev is a dev, as the commands of jobs know it.
type jobsDev struct {
	t    *testing.T
	addr string
}

// run runs a command and returns its exit code and what it printed.
func (d *jobsDev) run(stdin string, args ...string) (int, string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "corbel"), args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+d.addr, "HOME="+d.t.TempDir())
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String()
	}
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", args, err, out.String())
	}
	return 0, out.String()
}

// want runs a command that ends with a code, and prints all of texts.
func (d *jobsDev) want(code int, args []string, texts ...string) {
	d.t.Helper()
	got, out := d.run("", args...)
	if got != code {
		d.t.Errorf("corbel %s ended with %d, not %d\n%s", strings.Join(args, " "), got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			d.t.Errorf("corbel %s does not say %q\n%s", strings.Join(args, " "), text, out)
		}
	}
}

// says waits until a command prints text.
func (d *jobsDev) says(text string, args ...string) {
	d.t.Helper()
	polltest.NoError(d.t, 2*time.Minute, func() error {
		if _, out := d.run("", args...); !strings.Contains(out, text) {
			return fmt.Errorf("corbel %s: %s", strings.Join(args, " "), out)
		}
		return nil
	}, "%q", text)
}

func startJobsDev(t *testing.T) *jobsDev {
	t.Helper()
	ports := map[string]string{}
	for _, name := range []string{"http", "dns", "server", "serf", "jobs"} {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[name] = strconv.Itoa(port)
	}
	cmd := exec.Command(filepath.Join(binDir, "corbel"), "dev", "--log-level", "error", "--http-port", ports["http"],
		"--dns-port", ports["dns"], "--server-port", ports["server"], "--serf-lan-port", ports["serf"],
		"--hcl", "jobs { port = "+ports["jobs"]+" }")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	d := &jobsDev{t: t, addr: "http://127.0.0.1:" + ports["jobs"]}
	d.says("ready", "jobs", "nodes", "status")
	return d
}

// TestJobFiles plans each of the job files, and runs those that need neither docker nor other hosts.
func TestJobFiles(t *testing.T) {
	d := startJobsDev(t)
	files, err := filepath.Glob(filepath.Join(jobFiles, "*.nomad.hcl"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	// What others start, and what no host here can run, changes nothing now.
	later := map[string]bool{"dispatch": true, "nightly-batch": true, "system-exporter": true}
	for _, file := range files {
		changes := 1
		if later[strings.TrimSuffix(filepath.Base(file), ".nomad.hcl")] {
			changes = 0
		}
		d.want(changes, []string{"jobs", "plan", file}, `Job: "`, "Scheduler dry-run")
	}
	file := func(name string) string { return filepath.Join(jobFiles, name+".nomad.hcl") }

	// Services, which run to be stopped.
	for name, job := range map[string]string{"canary": "shop", "multi-group": "parts", "scaling": "elastic",
		"native-service": "native"} {
		d.want(0, []string{"jobs", "run", file(name)}, "successful")
		d.want(0, []string{"jobs", "status", job}, "running")
		d.want(0, []string{"jobs", "plan", file(name)})
	}
	d.want(0, []string{"jobs", "run", "-detach", file("disconnect")})
	d.says("edge", "jobs", "status")

	// An update behind a canary; one that cannot start comes back.
	d.want(0, []string{"jobs", "run", "-var", "text=two", file("canary")}, "successful")
	d.says("api two", "allocs", "logs", "-job", "-task", "api", "shop")

	// What runs once.
	for name, job := range map[string]string{"sysbatch-clean": "clean", "lifecycle": "stages"} {
		d.want(0, []string{"jobs", "run", "-detach", file(name)})
		d.says("complete", "jobs", "allocs", job)
	}
	d.want(0, []string{"vars", "put", "nomad/jobs/mailer", "user=post", "password=s3cret"})
	d.want(0, []string{"jobs", "run", "-detach", file("secrets-variable")})
	d.says("mail of post", "allocs", "logs", "-job", "mailer")

	// What others start.
	d.want(0, []string{"jobs", "run", file("nightly-batch")})
	d.want(0, []string{"jobs", "periodic", "force", "report"})
	d.says("report/periodic-", "jobs", "status")
	d.want(0, []string{"jobs", "run", file("dispatch")})
	if code, out := d.run("12345", "jobs", "dispatch", "-detach", "-meta", "customer=acme", "thumbnail", "-"); code != 0 {
		t.Errorf("dispatch ended with %d\n%s", code, out)
	}
	d.says("thumbnail/dispatch-", "jobs", "status")
	d.want(1, []string{"jobs", "dispatch", "thumbnail"}, "customer")

	// A count within its bounds, and one beyond them.
	d.want(0, []string{"jobs", "scale", "elastic", "web", "3"})
	d.want(1, []string{"jobs", "scale", "elastic", "web", "9"}, "9")
	for _, job := range []string{"shop", "parts", "elastic", "native", "edge"} {
		d.want(0, []string{"jobs", "stop", "-detach", "-purge", job})
	}
}
