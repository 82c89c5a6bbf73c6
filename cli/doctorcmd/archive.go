package doctorcmd

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"corbel.dev/corbel/doctor"
)

// maxEvidence bounds the evidence that is read.
const maxEvidence = 256 << 20

// evidenceFile is where corbel debug puts the cluster's evidence.
const evidenceFile = "cluster/doctor.json"

// read takes the evidence out of an archive, a folder, or a file of its own.
func read(name string) (*doctor.Cluster, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if info.IsDir() {
		return readFile(filepath.Join(name, filepath.FromSlash(evidenceFile)))
	}
	if strings.HasSuffix(name, ".json") {
		return readFile(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("--from %s: it is no archive of corbel debug: %w", name, err)
	}
	files := tar.NewReader(z)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--from %s: it holds no evidence (%s): it was gathered by an older Corbel, or without the "+
				"capture cluster", name, evidenceFile)
		}
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", name, err)
		}
		if h.Name == evidenceFile || strings.HasSuffix(h.Name, "/"+evidenceFile) {
			return decode(files, name)
		}
	}
}

func readFile(name string) (*doctor.Cluster, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	defer f.Close()
	return decode(f, name)
}

func decode(r io.Reader, name string) (*doctor.Cluster, error) {
	var c doctor.Cluster
	if err := json.NewDecoder(io.LimitReader(r, maxEvidence)).Decode(&c); err != nil {
		return nil, fmt.Errorf("--from %s: the evidence cannot be read: %w", name, err)
	}
	if len(c.Members) == 0 && len(c.Silent) == 0 {
		return nil, fmt.Errorf("--from %s: there is no evidence in it", name)
	}
	return &c, nil
}
