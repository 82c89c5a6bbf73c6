package rows

// Identity says what this agent is; it never changes while the process runs.
type Identity struct {
	Datacenter, PrimaryDatacenter string
	NodeName, NodeID              string
	NodeMeta                      map[string]string
	Version                       string // semver that peers' clients understand
	Revision, BuildDate           string
	Server                        bool
	GRPCPort, GRPCTLSPort         int
}
