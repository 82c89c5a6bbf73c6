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
	// Dir holds the clusters' folders, one each; what a failure leaves behind stays here when Keep is set.
	Dir  string
	Keep string // folder for histories, pictures and logs of failed runs
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
