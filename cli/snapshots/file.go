package snapshots

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"corbel.dev/corbel/cli/command"
	"github.com/hashicorp/hcl"
	"github.com/spf13/cobra"
)

// maxFileBytes bounds a configuration file, which has some thirty lines.
const maxFileBytes = 64 << 10

// fileKeys are the keys of snapshot_agent in a file and the flags that they set; ""
// marks those that are known and have no effect here.
var fileKeys = map[string]string{
	"http_addr": "http-addr", "token": "token", "datacenter": "datacenter", "ca_file": "ca-file", "ca_path": "ca-path",
	"cert_file": "client-cert", "key_file": "client-key", "tls_server_name": "tls-server-name", "license_path": "",
	"log.level": "", "log.enable_syslog": "", "log.syslog_facility": "",
	"snapshot.interval": "interval", "snapshot.retain": "retain", "snapshot.stale": "stale",
	"snapshot.lock_key":     "lock-key",
	"snapshot.max_failures": "max-failures", "snapshot.local_scratch_path": "local-scratch-path",
	"snapshot.name_prefix": "name-prefix",
	"snapshot.service":     "", "snapshot.deregister_after": "", "local_storage.path": "local-path",
	"aws_storage.access_key_id": "aws-access-key-id", "aws_storage.secret_access_key": "aws-secret-access-key",
	"aws_storage.s3_bucket": "aws-s3-bucket", "aws_storage.s3_region": "aws-s3-region",
	"aws_storage.s3_endpoint":   "aws-s3-endpoint",
	"aws_storage.s3_key_prefix": "aws-s3-key-prefix", "aws_storage.s3_static_snapshot_name": "aws-s3-static-snapshot-name",
	"aws_storage.s3_server_side_encryption": "aws-s3-server-side-encryption",
	"aws_storage.s3_enable_kms":             "aws-s3-enable-kms",
	"aws_storage.s3_kms_key":                "aws-s3-kms-key", "google_storage.bucket": "google-bucket",
	"google_storage.key_prefix":    "google-key-prefix",
	"google_storage.access_key_id": "google-access-key-id", "google_storage.secret_access_key": "google-secret-access-key",
	"google_storage.endpoint": "google-endpoint",
}

// configFlags gives c the flags that name files; the function it returns reads them
// and sets the flags that were not given. Later files win over earlier ones.
func configFlags(e *command.Env, c *cobra.Command) func() error {
	var files, dirs []string
	c.Flags().StringArrayVar(&files, "config-file", nil, "file of settings, HCL or JSON; flags win over it")
	c.Flags().StringArrayVar(&dirs, "config-dir", nil, "folder of such files, *.hcl and *.json in lexical order")
	return func() error {
		for _, dir := range dirs {
			entries, err := os.ReadDir(dir) // sorted by name
			if err != nil {
				return err
			}
			for _, entry := range entries {
				if ext := filepath.Ext(entry.Name()); !entry.IsDir() && (ext == ".hcl" || ext == ".json") {
					files = append(files, filepath.Join(dir, entry.Name()))
				}
			}
		}
		values := map[string]string{}
		for _, path := range files {
			if err := readFile(e, path, values); err != nil {
				return command.AsUsage(fmt.Errorf("%s: %w", path, err))
			}
		}
		for _, flag := range command.SortedKeys(values) {
			if c.Flags().Changed(flag) {
				continue
			}
			if err := c.Flags().Set(flag, values[flag]); err != nil {
				return command.Usagef("the configuration sets %s: %w", flag, err)
			}
		}
		return nil
	}
}

// readFile adds what a file sets to values, by flag.
func readFile(e *command.Env, path string, values map[string]string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return err
	}
	if len(text) > maxFileBytes {
		return fmt.Errorf("it is larger than %d bytes: is this a configuration?", maxFileBytes)
	}
	root, err := parse(path, text)
	if err != nil {
		return err
	}
	found := map[string]string{}
	for name, value := range root {
		if name != "snapshot_agent" {
			return fmt.Errorf("unknown key %q; everything stands in snapshot_agent", name)
		}
		if err := flatten("", value, found); err != nil {
			return err
		}
	}
	for _, key := range command.SortedKeys(found) {
		flag, known := fileKeys[key]
		switch {
		case !known:
			return fmt.Errorf("unknown key %q in snapshot_agent; known are %v", key, slices.Sorted(knownKeys))
		case found[key] == "": // as when it is left out
		case flag == "":
			fmt.Fprintf(e.Err, "warning: %s: %s has no effect\n", path, key)
		default:
			values[flag] = found[key]
		}
	}
	return nil
}

// parse reads JSON by the name of the file, else HCL: the library for HCL would also
// take JSON, but half of a file too.
func parse(path string, text []byte) (root map[string]any, err error) {
	if filepath.Ext(path) != ".json" {
		err = hcl.Decode(&root, string(text))
		return root, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err = in.Decode(&root); err != nil {
		return nil, err
	}
	if _, err = in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON object")
	}
	return root, nil
}

// knownKeys yields the keys that set something.
func knownKeys(yield func(string) bool) {
	for key, flag := range fileKeys {
		if flag != "" && !yield(key) {
			return
		}
	}
}

// flatten collects the scalars below value by their path.
func flatten(path string, value any, out map[string]string) error {
	switch v := value.(type) {
	case []map[string]any: // how the library tells blocks
		for _, block := range v {
			if err := flatten(path, block, out); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, inner := range v {
			below := name
			if path != "" {
				below = path + "." + name
			}
			if err := flatten(below, inner, out); err != nil {
				return err
			}
		}
	case string, json.Number, int, float64, bool:
		out[path] = fmt.Sprint(v)
	default:
		return fmt.Errorf("%s must be text, a number or a boolean", path)
	}
	return nil
}
