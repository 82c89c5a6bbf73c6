package asset

import (
	"path/filepath"
	"strings"

	"corbel.dev/corbel/monitor/substitute"
)

// Env returns an environment (NAME=value each) in which a command finds what assets hold: their bin, lib and include
// folders come first in PATH, LD_LIBRARY_PATH and CPATH, and NAME_PATH is each one's folder. base is not changed.
func Env(base []string, list []*Unpacked) []string {
	out := append([]string(nil), base...)
	if len(list) == 0 {
		return out
	}
	for _, v := range []struct{ name, folder string }{{"PATH", "bin"}, {"LD_LIBRARY_PATH", "lib"}, {"CPATH", "include"}} {
		var paths []string
		for _, u := range list {
			paths = append(paths, filepath.Join(u.Dir, v.folder))
		}
		out = prepend(out, v.name, strings.Join(paths, string(filepath.ListSeparator)))
	}
	for _, u := range list {
		out = append(out, substitute.AssetVariable(u.Name)+"="+u.Dir)
	}
	return out
}

func prepend(env []string, name, paths string) []string {
	for i := len(env) - 1; i >= 0; i-- { // the last one counts
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			if value != "" {
				paths += string(filepath.ListSeparator) + value
			}
			break
		}
	}
	return append(env, name+"="+paths)
}
