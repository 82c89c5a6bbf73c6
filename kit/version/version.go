// Package version says which Corbel this is.
//
// Number is set here and raised with each release; revision and date come from
// the build. All values are fixed at start and safe to read from any goroutine.
package version

import (
	"runtime/debug"
	"sync"
	"time"
)

// Number is the release, as semantic versioning has it.
const Number = "0.1.0"

// Contract is the version of the Consul contract that is spoken: what clients that
// choose features by version are told.
const Contract = "1.21.4"

// Build is where the binary comes from.
type Build struct {
	Revision string // commit, "unknown" outside a repository; "+changes" when it was changed
	Date     string // RFC 3339, of the commit
}

// Of reads the build's origin once.
var Of = sync.OnceValue(func() Build {
	b := Build{Revision: "unknown", Date: time.Unix(0, 0).UTC().Format(time.RFC3339)}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value[:min(12, len(s.Value))]
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed {
		b.Revision += "+changes"
	}
	return b
})

// VaultContract is the version of the Vault contract that is spoken: clients read it as a semantic version.
const VaultContract = "1.20.0"

// SensuContract is the version of the Sensu Go contract that is spoken: sensuctl and dashboards read it as a semantic
// version.
const SensuContract = "6.12.0"

// NomadContract is the version of the Nomad contract that is spoken: clients read it as a semantic version.
const NomadContract = "1.6.5"
