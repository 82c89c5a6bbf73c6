package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadDefinitions reads services and checks from a file of nothing else, "-" being
// stdin: what `corbel services register` sends to the agent.
func ReadDefinitions(path string, stdin io.Reader) (Definitions, error) {
	var d Definitions
	var from io.Reader = stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return d, err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxFileBytes+1))
	if err != nil {
		return d, err
	}
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	if format != "hcl" && format != "json" {
		format = ""
	}
	tree, err := parse(text, format)
	if err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		list, err := asObjects(tree[name])
		switch strings.ToLower(name) {
		case "service", "services":
			d.Services = append(d.Services, list...)
		case "check", "checks":
			d.Checks = append(d.Checks, list...)
		default:
			err = errors.New("is not a definition: the file may hold service and check blocks only")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s %w", path, name, err))
		}
	}
	return d, errors.Join(problems...)
}
