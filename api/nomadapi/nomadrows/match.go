package nomadrows

import (
	"net/url"
	"strings"
)

// match compares a pattern with a path that is still escaped.
func match(pattern, path string) (args map[string]string, ok bool) {
	if !fits(pattern, path) {
		return nil, false
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, segment := range want {
		if strings.HasPrefix(segment, "*") {
			behind := len(want) - i - 1
			if len(have) < i+behind+1 {
				return nil, false
			}
			end := len(have) - behind
			value, err := url.PathUnescape(strings.Join(have[i:end], "/"))
			if err != nil || value == "" {
				return nil, false
			}
			args = set(args, segment[1:], value)
			have = append(append(have[:i:i], segment), have[end:]...)
			continue
		}
		switch {
		case i >= len(have):
			return nil, false
		case strings.HasPrefix(segment, ":"):
			value, err := url.PathUnescape(have[i])
			if err != nil || value == "" {
				return nil, false
			}
			args = set(args, segment[1:], value)
		case segment != have[i]:
			return nil, false
		}
	}
	return args, len(want) == len(have)
}

// fits reports whether the words of a pattern stand where path has the same ones: before a segment that takes several,
// and behind it. Of the patterns of a head all but one or two fail here, without an allocation.
func fits(pattern, path string) bool {
	for {
		want, patterns, moreWanted := strings.Cut(pattern, "/")
		if strings.HasPrefix(want, "*") {
			break
		}
		have, paths, more := strings.Cut(path, "/")
		if want != have && !strings.HasPrefix(want, ":") || moreWanted != more {
			return false
		}
		if !more {
			return true
		}
		pattern, path = patterns, paths
	}
	for {
		at, in := strings.LastIndexByte(pattern, '/'), strings.LastIndexByte(path, '/')
		want := pattern[at+1:]
		if strings.HasPrefix(want, "*") {
			return true
		}
		if in < 0 || want != path[in+1:] && !strings.HasPrefix(want, ":") {
			return false
		}
		pattern, path = pattern[:at], path[:in]
	}
}

func set(args map[string]string, name, value string) map[string]string {
	if args == nil {
		args = map[string]string{}
	}
	args[name] = value
	return args
}
