package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// signs tell a licence by words of its text.
var signs = []struct {
	licence string
	words   *regexp.Regexp
}{
	{"BUSL", regexp.MustCompile(`(?i)Business Source License`)},
	{"SSPL", regexp.MustCompile(`(?i)Server Side Public License`)},
	{"AGPL", regexp.MustCompile(`(?i)GNU AFFERO GENERAL PUBLIC LICENSE`)},
	{"MPL-2.0", regexp.MustCompile(`(?i)Mozilla Public License,? (version|v\.?) ?2\.0`)},
	{"Apache-2.0", regexp.MustCompile(`(?i)Apache License[\s,]+Version 2\.0`)},
	{"LGPL", regexp.MustCompile(`(?i)GNU LESSER GENERAL PUBLIC LICENSE`)},
	{"GPL", regexp.MustCompile(`(?i)GNU GENERAL PUBLIC LICENSE`)},
	{"ISC", regexp.MustCompile(`(?i)Permission to use, copy, modify, and(/or)? distribute this software`)},
	{"BSD", regexp.MustCompile(`(?i)Redistribution and use in source and binary forms`)},
	{"MIT", regexp.MustCompile(`(?i)Permission is hereby granted, free of charge`)},
	{"CC0-1.0", regexp.MustCompile(`(?i)CC0 1\.0 Universal`)},
	{"Unlicense", regexp.MustCompile(`(?i)This is free and unencumbered software released into the public domain`)},
}

var allowed = []string{"Apache-2.0", "BSD", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// licenceFile fits the names under which modules keep their licence.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|mit-licen[cs]e)`)

// licenceOfProse fits those of the licence of a module's documentation alone, beside that of its code.
var licenceOfProse = regexp.MustCompile(`(?i)\.docs$`)

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// licences judges every module that packages of a module of ours come from. What
// the graph only mentions is not compiled in and not downloaded.
func (r *runner) licences() {
	byLicence := map[string]int{}
	seen := map[string]bool{}
	for _, dir := range r.mods {
		used, err := r.usedModules(dir)
		if err != nil {
			r.fail("licences "+r.rel(dir), err.Error())
			continue
		}
		var bad []string
		for _, m := range used {
			licence := licenceOf(m.Dir)
			if !slices.Contains(allowed, licence) {
				bad = append(bad, fmt.Sprintf("%s %s: licence is %s", m.Path, m.Version, licence))
			}
			if name := m.Path + "@" + m.Version; !seen[name] {
				seen[name] = true
				byLicence[licence]++
				if r.verbose {
					fmt.Printf("    %-12s %s\n", licence, name)
				}
			}
		}
		if len(bad) > 0 {
			r.fail("licences "+r.rel(dir), strings.Join(bad, "\n"))
			continue
		}
		r.pass()
	}
	for _, licence := range slices.Sorted(maps.Keys(byLicence)) {
		fmt.Printf("    %-12s %d modules\n", licence, byLicence[licence])
	}
}

func (r *runner) usedModules(dir string) ([]module, error) {
	args := []string{"list", "-deps", "-test", "-json=Module", "./..."}
	if tools, err := r.output(dir, "go", "list", "-f", "{{.ImportPath}}", "tool"); err == nil &&
		strings.TrimSpace(tools) != "" {
		args = append(args, "tool")
	}
	out, err := r.output(dir, "go", args...)
	if err != nil {
		return nil, err
	}
	found := map[string]module{}
	decoder := json.NewDecoder(strings.NewReader(out))
	for {
		var pkg struct{ Module *module }
		err := decoder.Decode(&pkg)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if m := pkg.Module; m != nil && !m.Main {
			found[m.Path] = *m
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b module) int { return strings.Compare(a.Path, b.Path) }), nil
}

// licenceOf reads the licence files at the root of a module's folder.
func licenceOf(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	verdict := "not found"
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || licenceOfProse.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "unreadable: " + err.Error()
		}
		if name := recognise(string(text)); verdict == "not found" || !slices.Contains(allowed, name) {
			verdict = name
		}
	}
	return verdict
}

// recognise names the licence whose words come first: the MPL speaks of the AGPL further down.
func recognise(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	name, first := "not recognised", len(text)
	for _, sign := range signs {
		if at := sign.words.FindStringIndex(text); at != nil && at[0] < first {
			name, first = sign.licence, at[0]
		}
	}
	return name
}
