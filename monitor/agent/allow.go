package agent

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Allowed is an entry of the allow list: a command with the arguments that it may have.
type Allowed struct {
	Exec      string   `yaml:"exec" json:"exec"`
	Args      []string `yaml:"args" json:"args"`
	SHA512    string   `yaml:"sha512" json:"sha512"`         // of the program's file; "" is any
	EnableEnv bool     `yaml:"enable_env" json:"enable_env"` // the check's own variables reach the command
}

// errDenied is the end of a command that the list does not allow.
var errDenied = errors.New("command denied by the agent allow list")

// Validate returns what is wrong with the entry.
func (a *Allowed) Validate() error {
	if a.Exec == "" {
		return errors.New("exec cannot be empty")
	}
	if len(a.Args) == 0 {
		return errors.New("args cannot be empty")
	}
	if b, err := hex.DecodeString(a.SHA512); a.SHA512 != "" && (err != nil || len(b) != sha512.Size) {
		return errors.New("sha512 is not 128 hexadecimal digits")
	}
	return nil
}

// allowedOf finds the entry that a command fits to: nothing but the program and arguments of the entry are in it. An
// empty list allows all, and has no entry.
func allowedOf(list []Allowed, line, what string) (*Allowed, error) {
	if len(list) == 0 {
		return nil, nil
	}
	for i := range list {
		a := &list[i]
		program, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if program != a.Exec {
			continue
		}
		if covered(strings.Fields(rest), a.Args) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%s %w", what, errDenied)
}

// covered reports whether words are nothing but entries of args, which may be several words each, in any order.
func covered(words, args []string) bool {
	reached := make([]bool, len(words)+1) // that words up to here are covered
	reached[0] = true
	for i := range words {
		for _, a := range args {
			want := strings.Fields(a)
			if reached[i] && len(want) > 0 && len(want) <= len(words)-i && slices.Equal(words[i:i+len(want)], want) {
				reached[i+len(want)] = true
			}
		}
	}
	return reached[len(words)]
}

// verify compares the program's file with the entry's digest.
func (a *Allowed) verify(line string, env []string, what string) error {
	if a.SHA512 == "" {
		return nil
	}
	program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	f, err := os.Open(find(program, env))
	if err != nil {
		return fmt.Errorf("%s %w: %v", what, errDenied, err)
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("%s %w: %v", what, errDenied, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, a.SHA512) {
		return fmt.Errorf("%s %w: %s has another sha512", what, errDenied, f.Name())
	}
	return nil
}

// find looks a program up as the shell will: in the last PATH of env.
func find(program string, env []string) string {
	if strings.Contains(program, "/") {
		return program
	}
	path := ""
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, program)
		if info, err := os.Stat(full); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return full
		}
	}
	return program
}
