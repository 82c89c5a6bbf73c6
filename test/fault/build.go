package faultrun

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Lab is where scenarios run: a built binary and a folder for data.
type Lab struct {
	// Binary is the server's program.
	Binary string
	// Servers, where it is set, is how many servers clusters have that have three else.
	Servers int
	// Dir holds the clusters' folders, one each; what a failure leaves behind stays here when Keep is set.
	Dir  string
	Keep string // folder for histories, pictures and logs of failed runs
}

// Size is how many servers a cluster has that a scenario wants to have so many.
func (l *Lab) Size(wanted int) int {
	if wanted == 3 && l.Servers > 0 {
		return l.Servers
	}
	return wanted
}

// BinaryEnv names a binary to use instead of building one; RaceEnv, when set, builds with the race detector.
const (
	BinaryEnv = "CORBEL_BIN"
	RaceEnv   = "CORBEL_FAULT_RACE"
)

// Build makes the binary in dir, or takes the one that the environment names.
func Build(dir string) (string, error) {
	if bin := os.Getenv(BinaryEnv); bin != "" {
		return filepath.Abs(bin)
	}
	bin := filepath.Join(dir, "corbel")
	args := []string{"build", "-o", bin}
	if os.Getenv(RaceEnv) != "" {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "corbel.dev/corbel/cmd/corbel")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// keepEnv names a folder where failed runs leave histories and pictures; default is below the system's temporary
// folder.
const keepEnv = "CORBEL_FAULT_KEEP"

// Main runs a package's tests with one binary and one folder.
func Main(m interface{ Run() int }, lab **Lab) int {
	dir, err := os.MkdirTemp("", "corbel-fault")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin, err := Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	keep := os.Getenv(keepEnv)
	if keep == "" {
		keep = filepath.Join(os.TempDir(), "corbel-fault-kept")
	}
	*lab = &Lab{Binary: bin, Dir: dir, Keep: keep}
	return m.Run()
}
