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

// entryLists are the fields of config entries that hold lists of objects, beside those
// of definitions; in lower case without underscores.
var entryLists = []string{"sources", "permissions", "routes", "splits", "listeners", "services", "targets", "overrides",
	"hashpolicies",
	"header", "queryparam", "certificates", "hostnames", "parents", "rules", "filters", "matches", "members", "consumers",
	"providers", "addresses"}

// ReadObject reads one object in HCL or JSON from text: a config entry, or settings
// of the mesh's authority. name is for messages; its ending tells the form.
func ReadObject(name string, text []byte) (map[string]any, error) {
	format := strings.TrimPrefix(filepath.Ext(name), ".")
	if format != "hcl" && format != "json" {
		format = ""
	}
	tree, err := parse(text, format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	markLists(tree)
	return plain(tree), nil
}

// markLists turns blocks that stand for lists into lists, however many there are.
func markLists(tree map[string]any) {
	for name, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			markLists(v)
		case []any:
			for _, item := range v {
				if object, ok := item.(map[string]any); ok {
					markLists(object)
				}
			}
		case blocks:
			list := make([]any, len(v))
			for i, object := range v {
				markLists(object)
				list[i] = object
			}
			if slices.Contains(entryLists, strings.ToLower(strings.ReplaceAll(name, "_", ""))) {
				tree[name] = list
			}
		}
	}
}

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
