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
		of("services", Service, map[string]string{"GET /v1/services": `[{"Namespace":"default","Services":[
			{"ServiceName":"api","Tags":["a","b"]}]}]`}, "list", "api           [a,b]", ""),
		of("no services", Service, map[string]string{"GET /v1/services": `[]`}, "list", "No service registrations found", ""),
		of("a service", Service, map[string]string{"GET /v1/service/api": `[{"ID":"_nomad-task-1","JobID":"web",
			"Address":"10.0.0.1","Port":80,"Tags":[],"NodeID":"0123456789","AllocID":"abcdefghij"}]`}, "info api",
			"web     10.0.0.1:80  []    01234567  abcdefgh", ""),
		of("a service's instance", Service, map[string]string{"DELETE /v1/service/api/_nomad-task-1": ""},
			"delete api _nomad-task-1", "Successfully deleted", ""),
		of("policies", Scaling, map[string]string{"GET /v1/scaling/policies": `[{"ID":"0123456789","Enabled":true,
			"Type":"horizontal","Target":{"Job":"web","Group":"g"}}]`}, "policy list", "01234567  true     horizontal", ""),
		of("a policy", Scaling, map[string]string{"GET /v1/scaling/policies": `[{"ID":"0123"},{"ID":"45"}]`,
			"GET /v1/scaling/policy/0123": `{"ID":"0123","Type":"horizontal","Max":9,"Policy":{"cooldown":"1m"}}`},
			"policy info 01", `"cooldown": "1m"`, ""),
		of("no policy", Scaling, map[string]string{"GET /v1/scaling/policies": `[]`}, "policy info 01", "",
			"0 scaling policies have an ID"),
		of("no key to go", Operator, nil, "root keyring remove", "", "takes one argument"),
	})
}
