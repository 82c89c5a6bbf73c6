// Package operatorrows answers operators: Raft's servers, autopilot, who leads, snapshots, gossip keys, usage, and
// where nodes lie in the network.
package operatorrows

// Config is what the rows for operators need; all is nil on a client agent, Keyring where gossip is not encrypted.
type Config struct {
	Group       Operator
	Snapshots   Snapshots
	Keyring     Keyring
	Coordinates Coordinates // nil: nobody knows where nodes lie
}

// Rows are the rows for operators.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }
