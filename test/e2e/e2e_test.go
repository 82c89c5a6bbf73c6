// Package e2e runs the real binary as people do: each testdata/*.txtar is a script
// of commands and what they must print.
//
// The binary is built once per run, or is the one that CORBEL_BIN names. A script gets an empty folder, HOME in it,
// free ports in HTTP_PORT, DNS_PORT, RPC_PORT, GOSSIP_PORT and WAN_PORT (and the same with _2, _3
// and _4), CORBEL_HTTP_ADDR and DNS for the first of them, and no other CORBEL_ or CONSUL_ variable.
// What a script leaves running is ended with it.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"corbel.dev/corbel/kit/testport"
	faultrun "corbel.dev/corbel/test/fault"
)

var binDir string

func TestMain(m *testing.M) {
	testscript.Main(built{m}, map[string]func(){"http": httpMain, "sensucurl": sensucurlMain, "dig": digMain,
		"await": awaitMain, "serve": serveMain, "collect": collectMain, "certs": certsMain, "jwt": jwtMain,
		"netserver": netserverMain, "shell": shellMain})
}

// built is the tests with the binary built before; the commands of scripts need none.
type built struct{ m *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "corbel-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if given := os.Getenv("E2E_APART"); given != "" { // another process of the tests has built it
		binDir = given
		return b.m.Run()
	}
	bin, err := faultrun.Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binDir = filepath.Dir(bin)
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		// Scripts wait most of their time: more of them at once than there are processors.
		if err := given.Value.Set("6"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return b.m.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"code": code},
	})
}

func setup(e *testscript.Env) error {
	e.Setenv("PATH", binDir+string(os.PathListSeparator)+e.Getenv("PATH"))
	for _, suffix := range []string{"", "_2", "_3", "_4"} {
		for _, name := range []string{"HTTP_PORT", "DNS_PORT", "RPC_PORT", "GOSSIP_PORT", "WAN_PORT", "MONITOR_PORT",
			"AGENTS_PORT"} {
			port, err := freePort()
			if err != nil {
				return err
			}
			e.Setenv(name+suffix, strconv.Itoa(port))
		}
	}
	// The commands of scripts are this binary; under the race detector it sleeps a second at each exit otherwise.
	e.Setenv("GORACE", "atexit_sleep_ms=0")
	e.Setenv("CORBEL_HTTP_ADDR", "127.0.0.1:"+e.Getenv("HTTP_PORT"))
	archive, err := filepath.Abs("../../cli/migrate/snapfile/testdata/consul.snap")
	if err != nil {
		return err
	}
	e.Setenv("CONSUL_SNAPSHOT", archive)
	e.Setenv("DNS", "127.0.0.1:"+e.Getenv("DNS_PORT"))
	return nil
}

// freePort returns a port that is free for TCP and UDP and was never given to another script.
func freePort() (int, error) {
	ports, err := testport.Free(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// code runs a command and compares its exit code: code 2 corbel nope.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command arguments")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
		}
		got = exit.ExitCode()
	}
	if want := args[0]; fmt.Sprint(got) != want {
		ts.Fatalf("%s: exit code %d, want %s", strings.Join(args[1:], " "), got, want)
	}
}
