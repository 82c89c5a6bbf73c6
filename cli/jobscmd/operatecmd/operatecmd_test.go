package operatecmd

import (
	"testing"

	"corbel.dev/corbel/cli/jobscmd/jobscmdtest"
)

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	const keys = "GET /v1/operator/keyring/keys"
	of := jobscmdtest.Of
	jobscmdtest.Run(t, []jobscmdtest.Case{
		of("settings", Operator,
			map[string]string{"GET /v1/operator/scheduler/configuration": `{"SchedulerConfig":{"ModifyIndex":4}}`,
				"PUT /v1/operator/scheduler/configuration": `{"Updated":false}`},
			"scheduler set-config --scheduler-algorithm spread", "", "changed meanwhile"),
		of("keys", Operator, map[string]string{keys: `[{"KeyID":"0123456789","State":"active","CreateTime":1}]`},
			"root keyring list", "01234567  active  1970-01-01", ""),
		of("no keys", Operator, map[string]string{keys: `[]`}, "root keyring list", "No keys", ""),
		of("a new key", Operator, map[string]string{
			"PUT /v1/operator/keyring/rotate": `{"Key":{"KeyID":"0123456789","State":"active"}}`},
			"root keyring rotate --verbose", "0123456789", ""),
		of("a key that goes", Operator, map[string]string{"DELETE /v1/operator/keyring/key/k1": ""},
			"root keyring remove k1", "Removed key k1", ""),
		of("no archive to restore", Operator, nil, "snapshot restore /dev/null", "", "nothing was sent"),
		of("no archive to look into", Operator, nil, "snapshot inspect /dev/null", "", "does not verify"),
		of("a snapshot that is none", Operator, map[string]string{"GET /v1/operator/snapshot": "x"},
			"snapshot save "+t.TempDir()+"/a", "", "does not verify"),
		of("no key to go", Operator, nil, "root keyring remove", "", "takes one argument"),
	})
}
