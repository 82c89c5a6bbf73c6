package nomadrows

import (
	"net/url"
	"strings"
)

// match compares a pattern with a path that is still escaped.
func match(pattern, path string) (args map[string]string, ok bool) {
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

func set(args map[string]string, name, value string) map[string]string {
	if args == nil {
		args = map[string]string{}
	}
	args[name] = value
	return args
}
