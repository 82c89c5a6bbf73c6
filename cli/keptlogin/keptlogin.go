// Package keptlogin keeps the logins of Corbel's command line, one file for each plane and address in the user's config
// folder, readable by its owner alone. A login is used with the address alone that it was made at: nobody else is shown
// it. Where there is no home, nothing is kept and nothing found.
package keptlogin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The planes that logins are for.
const (
	Catalog = "catalog"
	Secrets = "secrets"
	Monitor = "monitor"
)

// Login is what a plane knows somebody by: a token, or an API key of the monitor plane, or a user and a password.
type Login struct {
	Token    string `json:"token,omitempty"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// ErrNoHome says that there is no folder to keep logins in.
var ErrNoHome = errors.New("neither XDG_CONFIG_HOME nor HOME is set: there is no place to keep a login in")

// path is the file of a plane at an address.
func path(getenv func(string) string, plane, address string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := getenv("HOME")
		if home == "" {
			return "", ErrNoHome
		}
		dir = filepath.Join(home, ".config")
	}
	sum := sha256.Sum256([]byte(plane + " " + normal(address)))
	return filepath.Join(dir, "corbel", "logins", plane+"-"+hex.EncodeToString(sum[:8])+".json"), nil
}

// normal writes an address in one way.
func normal(address string) string {
	address = strings.TrimSuffix(strings.TrimPrefix(cmp.Or(address, "127.0.0.1:8500"), "http://"), "/")
	if port, ok := strings.CutPrefix(address, "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	return address
}

// Of is the login that is kept; the zero value is none.
func Of(getenv func(string) string, plane, address string) (l Login) {
	name, err := path(getenv, plane, address)
	if err != nil {
		return l
	}
	text, err := os.ReadFile(name)
	if err != nil || json.Unmarshal(text, &l) != nil {
		return Login{} // whoever has none is told so by the plane
	}
	return l
}

// Keep keeps a login, in place of one that is there.
func Keep(getenv func(string) string, plane, address string, l Login) error {
	name, err := path(getenv, plane, address)
	if err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*") // for its owner alone
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Forget removes a login; one that is not there is no error.
func Forget(getenv func(string) string, plane, address string) error {
	name, err := path(getenv, plane, address)
	if err != nil {
		return nil
	}
	if err = os.Remove(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
