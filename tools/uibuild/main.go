// Command uibuild bundles the web UI with Go alone.
//
//	uibuild [-check] DIR
//	uibuild -script FILE DIR
//
// DIR is the folder `ui` of the product. It checks the hashes of DIR/vendor, bundles DIR/src and writes DIR/dist: the
// page, and its scripts and styles under names that carry a hash of their content, each beside its gzip and Brotli
// forms. With -check it writes nothing and fails when DIR/dist is not what DIR/src gives.
//
// With -script it writes the bundle of one file of DIR to the standard output, as a script whose exports are the global
// "script", for engines that know no later language than that of 2017: the tests of ui run parts of src so.
//
// The result does not depend on the machine: esbuild and both compressors are libraries of locked versions.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/evanw/esbuild/pkg/api"
	"github.com/klauspost/compress/gzip"
)

// firstLoad is what the page may cost before it shows something: all that index.html names, gzipped, in bytes.
const firstLoad = 90 << 10

func main() {
	check := flag.Bool("check", false, "fail when dist is not what src gives; write nothing")
	file := flag.String("script", "", "write the bundle of this `FILE` of DIR to the standard output, and nothing else")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: uibuild [-check | -script FILE] DIR")
		os.Exit(2)
	}
	err := error(nil)
	if *file != "" {
		err = script(flag.Arg(0), *file)
	} else {
		err = run(flag.Arg(0), *check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "uibuild:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	if err := verify(filepath.Join(dir, "vendor")); err != nil {
		return err
	}
	files, err := bundle(dir)
	if err != nil {
		return err
	}
	dist := filepath.Join(dir, "dist")
	if check {
		return compare(dist, files)
	}
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dist, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// script writes the bundle of one file of dir to the standard output.
func script(dir, file string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{AbsWorkingDir: abs, EntryPoints: []string{file}, Bundle: true,
		Format: api.FormatIIFE, GlobalName: "script", Target: api.ES2017, Charset: api.CharsetUTF8,
		LogLevel: api.LogLevelSilent})
	if len(result.Errors) > 0 {
		return errors.New(strings.Join(api.FormatMessages(result.Errors, api.FormatMessagesOptions{}), ""))
	}
	_, err = os.Stdout.Write(result.OutputFiles[0].Contents)
	return err
}

// verify compares the vendored files with their list: none may differ, be missing or be there besides.
func verify(vendor string) error {
	list, err := os.ReadFile(filepath.Join(vendor, "SHA256SUMS"))
	if err != nil {
		return err
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("vendor/SHA256SUMS: %q is no sum and name", line)
		}
		want[strings.TrimPrefix(name, "./")] = sum
	}
	err = filepath.WalkDir(vendor, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(vendor, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if name == "SHA256SUMS" || name == "README.md" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		if want[name] != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("vendor/%s is not the file that SHA256SUMS lists", name)
		}
		delete(want, name)
		return nil
	})
	for name := range want {
		err = errors.Join(err, fmt.Errorf("vendor/%s is missing", name))
	}
	return err
}

// bundle returns the files of dist by their names.
func bundle(dir string) (map[string][]byte, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	vendored := func(name string) string { return filepath.Join(abs, "vendor", filepath.FromSlash(name)) }
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: abs,
		EntryPoints:   []string{"src/main.tsx", "src/style.css"},
		Outdir:        filepath.Join(abs, "dist"),
		EntryNames:    "[name]-[hash]", ChunkNames: "chunk-[hash]", AssetNames: "[name]-[hash]",
		Bundle: true, Splitting: true, Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		MinifySyntax: true, MinifyIdentifiers: true, MinifyWhitespace: true, LegalComments: api.LegalCommentsNone,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
		Alias: map[string]string{
			"preact":               vendored("preact/dist/preact.mjs"),
			"preact/hooks":         vendored("preact/hooks/dist/hooks.mjs"),
			"preact/jsx-runtime":   vendored("preact/jsx-runtime/dist/jsxRuntime.mjs"),
			"@preact/signals":      vendored("signals/dist/signals.mjs"),
			"@preact/signals-core": vendored("signals-core/dist/signals-core.mjs"),
			"uplot":                vendored("uplot/dist/uPlot.esm.js"),
		},
		LogLevel: api.LogLevelSilent, Metafile: true,
	})
	if len(result.Errors) > 0 {
		text := api.FormatMessages(result.Errors, api.FormatMessagesOptions{})
		return nil, errors.New(strings.Join(text, ""))
	}
	files := map[string][]byte{}
	var script, style string
	for _, f := range result.OutputFiles {
		name := filepath.Base(f.Path)
		files[name] = f.Contents
		switch {
		case strings.HasPrefix(name, "main-"):
			script = name
		case strings.HasPrefix(name, "style-") && strings.HasSuffix(name, ".css"):
			style = name
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	page = bytes.ReplaceAll(page, []byte("main.js"), []byte(script))
	files["index.html"] = bytes.ReplaceAll(page, []byte("style.css"), []byte(style))
	first, err := static(result.Metafile, script)
	if err != nil {
		return nil, err
	}
	first = append(first, style, "index.html")
	load := 0
	for name, data := range maps.Clone(files) {
		small, err := compress(files, name, data)
		if err != nil {
			return nil, err
		}
		if slices.Contains(first, name) {
			load += small
		}
	}
	if load > firstLoad {
		return nil, fmt.Errorf("the first load is %d bytes gzipped, more than %d", load, firstLoad)
	}
	return files, nil
}

// static are the scripts that the page loads before it runs: script, and what it imports other than on demand.
func static(metafile, script string) (list []string, err error) {
	var meta struct {
		Outputs map[string]struct {
			Imports []struct{ Path, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return nil, err
	}
	list = []string{script}
	for i := 0; i < len(list); i++ {
		for _, in := range meta.Outputs["dist/"+list[i]].Imports {
			if name := filepath.Base(in.Path); in.Kind == "import-statement" && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list, nil
}

// compress adds the compressed forms of a file and returns the size of the gzipped one.
func compress(files map[string][]byte, name string, data []byte) (int, error) {
	var zipped, small bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	b := brotli.NewWriterLevel(&small, brotli.BestCompression)
	_, err = z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		return 0, err
	}
	_, err = b.Write(data)
	if err = errors.Join(err, b.Close()); err != nil {
		return 0, err
	}
	files[name+".gz"], files[name+".br"] = zipped.Bytes(), small.Bytes()
	return zipped.Len(), nil
}

var errStale = errors.New("dist is not what src gives: run go generate ./ui and commit what it writes")

func compare(dist string, files map[string][]byte) error {
	there, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range there {
		names = append(names, d.Name())
	}
	for name, data := range files {
		now, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil || !bytes.Equal(now, data) {
			return fmt.Errorf("%s: %w", name, errStale)
		}
	}
	for _, name := range names {
		if _, ok := files[name]; !ok && !slices.Contains([]string{".gitattributes"}, name) {
			return fmt.Errorf("%s: %w", name, errStale)
		}
	}
	return nil
}
