//go:build release

// Command release makes all artefacts of a release in one folder, byte by byte the same each time:
//
//	go run -tags release . -out dist [-key release.key] [-only binaries,packages,image]
//
// Binaries for linux, darwin and windows, their software bill of materials (CycloneDX), packages (deb, rpm, apk), the
// image as an OCI layout, checksums of all of these, and with -key their signature. Another date than that of the
// commit appears nowhere: SOURCE_DATE_EPOCH, when set, is taken instead.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what is made, of what, and where.
type release struct {
	source, out string
	version     string
	date        time.Time // of all files
	key         string    // file of the private key; "" signs nothing
	only        []string
	targets     []target
	quick       bool // packages are hardly compressed: tests install those of real binaries
}

func main() {
	r := release{}
	only := flag.String("only", "binaries,packages,image", "what to make; packages and images are made of binaries in -out")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64",
		"os/arch of binaries")
	flag.StringVar(&r.out, "out", "dist", "folder for what is made")
	flag.StringVar(&r.source, "source", "../..", "root of the source tree")
	flag.StringVar(&r.key, "key", "", "file with an Ed25519 private key (PEM, PKCS 8) to sign the checksums with")
	newKey := flag.String("new-key", "", "make a key in this file and its public half beside it (.pub), and end")
	flag.Parse()
	if *newKey != "" {
		exit(makeKey(*newKey))
	}
	r.only = strings.Split(*only, ",")
	var err error
	if r.targets, err = targetsIn(*targets); err != nil {
		exit(fmt.Errorf("-targets: %w", err))
	}
	exit(r.make())
}

// targetsIn reads a list of os/arch.
func targetsIn(text string) (list []target, err error) {
	for _, t := range strings.Split(text, ",") {
		system, arch, ok := strings.Cut(t, "/")
		if !ok {
			return nil, fmt.Errorf("%q is not os/arch", t)
		}
		list = append(list, target{system, arch})
	}
	return list, nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// make makes everything that is wanted.
func (r *release) make() (err error) {
	if r.version, err = versionIn(r.source); err != nil {
		return err
	}
	if r.date, err = dateOf(r.source); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{{"binaries", r.binaries}, {"packages", r.packages}, {"image", r.image}} {
		if !slices.Contains(r.only, step.name) {
			continue
		}
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return r.sums()
}

// versionIn reads the number of the release from the source, which is its only place.
func versionIn(source string) (string, error) {
	b, err := os.ReadFile(filepath.Join(source, "kit/version/version.go"))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(b), "const Number = \"")
	number, _, ended := strings.Cut(rest, "\"")
	if !ok || !ended {
		return "", errors.New("kit/version/version.go: Number was not found")
	}
	return number, nil
}

// dateOf is the date of all that is made.
func dateOf(source string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "-C", source, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the date of the commit: %w; or set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}
