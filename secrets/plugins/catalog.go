package plugins

import (
	"cmp"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Types of plug-ins, as the API names them.
const (
	Secret = "secret"
	Auth   = "auth"
)

// Entry is a program that may be run. Name, Type and Version are its key.
type Entry struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"` // "v1.2.3"; "": none was said
	Command string   `json:"command"`           // a path below the folder of plug-ins
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // NAME=value
	SHA256  string   `json:"sha256"`
}

// catalogPrefix is where the catalog is: type/name/version, "-" for none.
const catalogPrefix = "core/plugin-catalog/"

// key is where an entry is stored.
func (e *Entry) key() string {
	return catalogPrefix + e.Type + "/" + e.Name + "/" + cmp.Or(e.Version, "-")
}

// CheckName reports why a name cannot be a plug-in's.
func CheckName(name string) error {
	if name == "" || len(name) > 128 || strings.Trim(name, ".") == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) {
		return errkind.Errorf(errkind.Invalid, "name: %q must be letters, digits, '-', '_' and '.', 128 at most", name)
	}
	return nil
}

// CheckType refuses what is no type of plug-ins that can be run.
func CheckType(text string) error {
	switch text {
	case Secret, Auth:
		return nil
	case "database":
		return errkind.New(errkind.Invalid, "type: plug-ins of databases are not run yet: secret and auth are")
	}
	return errkind.Errorf(errkind.Invalid, "type: %q must be secret or auth: sys/plugins/catalog/TYPE/NAME", text)
}

// versionOf reads a version, which begins with a v in the catalog.
func versionOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	v, err := version.NewSemver(text)
	if err != nil {
		return "", errkind.Errorf(errkind.Invalid, "version: %q is not semantic, as v1.2.3 is", text)
	}
	return "v" + v.String(), nil
}

// registered reads what a registration says.
func registered(kind, name string, f *secrets.Fields) (*Entry, error) {
	if err := cmp.Or(CheckType(kind), CheckName(name)); err != nil {
		return nil, err
	}
	if f.String("oci_image") != "" || f.String("runtime") != "" {
		return nil, errkind.New(errkind.Invalid, "oci_image, runtime: plug-ins in containers are not run: register a command")
	}
	e := &Entry{Type: kind, Name: name, Args: f.Strings("args"), Env: f.Strings("env"),
		SHA256: strings.ToLower(cmp.Or(f.String("sha256"), f.String("sha_256")))}
	words := strings.Fields(f.String("command"))
	said, wrong := versionOf(f.String("version"))
	if err := cmp.Or(f.Err(), wrong); err != nil {
		return nil, err
	}
	if e.Version = said; len(words) > 0 {
		e.Command, e.Args = words[0], append(words[1:], e.Args...)
	}
	if err := checkCommand(e.Command); err != nil {
		return nil, err
	}
	if sum, err := hex.DecodeString(e.SHA256); err != nil || len(sum) != 32 {
		return nil, errkind.New(errkind.Invalid, "sha256: must be the SHA-256 of the program, 64 hexadecimal digits")
	}
	return e, checkEnv(e.Env)
}

// checkEnv refuses variables that are none, and those by which a loader or a runtime runs code that nobody checked.
func checkEnv(env []string) error {
	for _, pair := range env {
		name, _, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.ContainsRune(pair, 0) {
			return errkind.New(errkind.Invalid, "env: each must be NAME=value")
		}
		if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") ||
			slices.Contains([]string{"GODEBUG", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV", "ENV"}, name) {
			return errkind.Errorf(errkind.Invalid, "env: %s may have the program run or do what is not in the file of that "+
				"SHA-256: leave it out", name)
		}
	}
	return nil
}

// checkCommand refuses a command that is not below the folder of plug-ins by its words alone.
func checkCommand(command string) error {
	switch {
	case command == "":
		return errkind.New(errkind.Invalid, "command: is missing: the program's name in plugin_directory")
	case path.IsAbs(command) || strings.ContainsAny(command, "\\\x00") || path.Clean(command) != command ||
		command == ".." || command == "." || strings.HasPrefix(command, "../"):
		return errkind.Errorf(errkind.Invalid, "command: %q must be a path below plugin_directory, without '..'", command)
	}
	return nil
}

// shown is an entry as the API tells of it. Values of env may be secret.
func (e *Entry) shown() map[string]any {
	return map[string]any{"name": e.Name, "type": e.Type, "version": e.Version, "builtin": false, "command": e.Command,
		"args": append([]string{}, e.Args...), "sha256": e.SHA256, "deprecation_status": "", "oci_image": "", "runtime": ""}
}

// newest is the entry that is meant where no version is said: the one without a version, else the highest.
func newest(list []*Entry) *Entry {
	if len(list) == 0 {
		return nil
	}
	return slices.MaxFunc(list, func(a, b *Entry) int {
		if a.Version == "" || b.Version == "" {
			return len(b.Version) - len(a.Version)
		}
		va, errA := version.NewSemver(a.Version)
		vb, errB := version.NewSemver(b.Version)
		if errA != nil || errB != nil {
			return cmp.Compare(a.Version, b.Version)
		}
		return va.Compare(vb)
	})
}
