package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// TestSampleStarts: the server of docs/configuration.md starts as it stands with the files that it names, on all
// addresses; then port 8300 speaks to nobody without a certificate, and `corbel validate` agrees. Without TLS and key
// nothing starts.
func TestSampleStarts(t *testing.T) {
	for _, file := range []string{"configuration.md"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := inFolder(dir, "certs", "server.dc1.consul").CombinedOutput(); err != nil {
				t.Fatalf("certs: %v\n%s", err, out)
			}
			text, err := os.ReadFile("../../docs/" + file)
			if err != nil {
				t.Fatal(err)
			}
			sample := regexp.MustCompile("(?s)```hcl\n(data_dir .*?)```").FindSubmatch(text)
			if sample == nil {
				t.Fatal("the sample is gone")
			}
			ports := map[string]int{}
			for _, name := range []string{"http", "https", "server", "serf_lan", "serf_wan"} {
				if ports[name], err = freePort(); err != nil {
					t.Fatal(err)
				}
			}
			config := strings.NewReplacer("/etc/corbel/ca.pem", "ca.pem", "/etc/corbel/server.pem", "cert.pem",
				"/etc/corbel/server.key", "key.pem",
				"/var/lib/corbel", "data", `"the key of corbel keygen"`, `"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="`,
				`encrypt   = "..."`, `encrypt = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="`,
				"bootstrap_expect = 3", "bootstrap_expect = 1", `["10.0.0.5", "10.0.0.6", "10.0.0.7"]`, "[]", `"10.0.0.5"`,
				`"0.0.0.0"`).Replace(string(sample[1]))
			config += fmt.Sprintf("\nadvertise_addr = \"127.0.0.1\"\nports {\n http = %d\n server = %d\n serf_lan = %d\n "+
				"serf_wan = %d\n dns = -1\n", ports["http"], ports["server"], ports["serf_lan"], ports["serf_wan"])
			if strings.Contains(config, "https ") {
				config += fmt.Sprintf(" https = %d\n", ports["https"])
			}
			if err := os.WriteFile(filepath.Join(dir, "corbel.hcl"), []byte(config+"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := inFolder(dir, filepath.Join(binDir, "corbel"), "validate",
				"corbel.hcl").CombinedOutput(); err != nil {
				t.Fatalf("validate: %s", out)
			}
			var output bytes.Buffer
			server := inFolder(dir, filepath.Join(binDir, "corbel"), "server", "--config-file", "corbel.hcl")
			server.Stdout, server.Stderr = &output, &output
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- server.Wait() }()
			stop := func() { _ = server.Process.Kill(); <-ended }
			t.Cleanup(func() { stop() })
			polltest.NoError(t, time.Minute, func() error {
				select {
				case err := <-ended:
					stop = func() {}
					t.Fatalf("the server ended: %v\n%s", err, &output)
				default:
				}
				answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/v1/agent/health/ready", ports["http"]))
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					return fmt.Errorf("status %d", answer.StatusCode)
				}
				return nil
			}, "the server to be ready")
			strangersAreRefused(t, dir, ports["server"])
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		out, err := inFolder(t.TempDir(), filepath.Join(binDir, "corbel"), "server", "--data-dir", "data", "--bootstrap",
			"--bind", "0.0.0.0").CombinedOutput()
		for _, want := range []string{"tls.defaults.ca_file", "corbel tls ca create", "corbel keygen", "-allow-plaintext",
			"-allow-unencrypted-gossip"} {
			if err == nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("%v, and no %q in\n%s", err, want, out)
			}
		}
	})
}

func inFolder(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

// strangersAreRefused tries port 8300 in plain text, with TLS and no certificate, and asks for another name than a
// server's.
func strangersAreRefused(t *testing.T, dir string, port int) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = conn.Write([]byte("\x02\x00hello, this is plain text"))
	answer := make([]byte, 64)
	if n, _ := conn.Read(answer); n > 0 && answer[0] != 21 { // an alert of TLS
		t.Errorf("plain text is answered with %q", answer[:n])
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	nobody, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "server.dc1.consul",
		MinVersion: tls.VersionTLS12})
	if err == nil {
		defer nobody.Close()
		_ = nobody.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = nobody.Write([]byte{2, 0})
		if n, err := nobody.Read(answer); err == nil {
			t.Errorf("a peer without a certificate is answered with %q", answer[:n])
		}
	}
}
