package snapshots

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// settings parses args and reads the files they name, with the flags of the agent.
func settings(t *testing.T, args ...string) (o agentOptions, d command.Dial, warnings string, err error) {
	t.Helper()
	var out bytes.Buffer
	e := &command.Env{Err: &out, Getenv: func(string) string { return "" }}
	c := &cobra.Command{Use: "agent"}
	d.Flags(e, c)
	o.flags(e, c)
	read := configFlags(e, c)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err = read(); err == nil {
		err = o.complete(e, c)
	}
	return o, d, out.String(), err
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	asJSON := write(t, dir, "b.json", `{"snapshot_agent": {"token": "", "log": {"level": "INFO"},
		"snapshot": {"interval": "30m", "retain": 7, "stale": true, "lock_key": "mine/lock", "service": "s"},
		"aws_storage": {"s3_bucket": "b", "s3_region": "r", "s3_enable_kms": true, "s3_kms_key": "k"}, "local_storage": {"path": "/x"}}}`)
	o, d, warnings, err := settings(t, "--config-file", asJSON, "--retain", "9")
	if err != nil {
		t.Fatal(err)
	}
	if o.interval != 30*time.Minute || o.retain != 9 || !d.Q.Stale || o.lockKey != "mine/lock" || o.localPath != "/x" ||
		o.aws.Bucket != "b" || o.aws.Region != "r" || o.aws.Encrypt != "aws:kms" || o.aws.KMSKey != "k" ||
		o.aws.Prefix != "consul-snapshot" {
		t.Errorf("read: %+v, stale %v", o, d.Q.Stale)
	}
	if !strings.Contains(warnings, "log.level has no effect") || !strings.Contains(warnings, "snapshot.service") {
		t.Errorf("warnings: %q", warnings)
	}
	write(t, dir, "a.hcl", "snapshot_agent {\n  snapshot {\n    interval = \"1m\"\n    retain = 3\n  }\n  "+
		"google_storage { bucket = \"g\" }\n}\n")
	write(t, dir, "README", "not read")
	if o, _, _, err = settings(t, "--config-dir", dir); err != nil || o.interval != 30*time.Minute || o.retain != 7 ||
		o.google.Bucket != "g" {
		t.Errorf("of a.hcl and then b.json: %+v, %v", o, err)
	}
}

func TestWrongConfigFiles(t *testing.T) {
	for text, want := range map[string]string{
		`{"snapshot": {"retain": 3}}`:                                "snapshot_agent",
		`{"snapshot_agent": {"snapshot": {"retian": 3}}}`:            "snapshot.retian",
		`{"snapshot_agent": {"snapshot": {"retain": [1, 2]}}}`:       "must be text",
		`{"snapshot_agent": {"snapshot": {"interval": "often"}}}`:    "interval",
		`{"snapshot_agent": {"snapshot": {"retain": 0}}}`:            "retain",
		`{"snapshot_agent": {"azure_blob_storage": {"a": "b"}}}`:     "azure_blob_storage.a",
		`{"snapshot_agent": `:                                        "",
		strings.Repeat(" ", maxFileBytes+1):                          "larger",
		`{"snapshot_agent": {"snapshot": {"lock_key": "/"}}}`:        "lock-key",
		`{"snapshot_agent": {"snapshot": {"name_prefix": "a/b"}}}`:   "name-prefix",
		`{"snapshot_agent": {"snapshot": {"interval": "-1s"}}}`:      "negative",
		`{"snapshot_agent": {"snapshot": {"max_failures": "some"}}}`: "max-failures",
	} {
		path := write(t, t.TempDir(), "x.json", text)
		if _, _, _, err := settings(t, "--config-file", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want it to name %q", text, err, want)
		}
	}
	if _, _, _, err := settings(t, "--config-file", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was taken")
	}
}
