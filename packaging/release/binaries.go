//go:build release

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// target is what a binary is made for.
type target struct{ system, arch string }

func (t target) file(version string) string {
	name := fmt.Sprintf("corbel_%s_%s_%s", version, t.system, t.arch)
	if t.system == "windows" {
		name += ".exe"
	}
	return name
}

func (r *release) binaries() error {
	for _, t := range r.targets {
		path, err := filepath.Abs(filepath.Join(r.out, t.file(r.version)))
		if err != nil {
			return err
		}
		if err := build(r.source, path, t); err != nil {
			return err
		}
		if err := r.bill(path, t); err != nil {
			return err
		}
	}
	return nil
}

// build builds one binary. Paths are trimmed and nothing of this machine's C is used, so that it is the same everywhere;
// a source whose commit is not known is refused, since its binary would be another.
func build(source, path string, t target) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/corbel")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS="+t.system, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s/%s: %w\n%s", t.system, t.arch, err, out)
	}
	return nil
}

// component is a module in a CycloneDX bill.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// bill writes what a binary is made of, as the binary itself tells.
func (r *release) bill(path string, t target) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	list := []component{module(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, module(m))
	}
	slices.SortFunc(list, func(a, b component) int { return strings.Compare(a.PURL, b.PURL) })
	main := module(&debug.Module{Path: info.Main.Path, Version: r.version})
	main.Type, main.Hashes = "application", []hash{{"SHA-256", fmt.Sprintf("%x", sum)}}
	// A serial number of the content: the same binary has the same bill.
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: of one's own making
	serial := fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	out, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "serialNumber": serial,
		"metadata": map[string]any{"timestamp": r.date.Format("2006-01-02T15:04:05Z"), "component": main,
			"properties": []map[string]string{{"name": "target", "value": t.system + "/" + t.arch}}},
		"components": list,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path+".cdx.json", append(out, '\n'), 0o644)
}

func module(m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
}
