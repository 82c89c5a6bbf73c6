package tasktemplate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"corbel.dev/corbel/kit/safetemplate"
)

// functions are those of the template language that job files are written in. What they make is paid for.
func (t *set) functions(b *safetemplate.Budget) template.FuncMap {
	all := t.lookups()
	pay := func(f func(string) string) func(string) (string, error) {
		return func(s string) (string, error) { return f(s), b.Spend(2 * len(s)) }
	}
	for name, f := range map[string]func(string) string{"toLower": strings.ToLower, "toUpper": strings.ToUpper,
		"trimSpace":    strings.TrimSpace,
		"base64Encode": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"sha256Hex":    func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
		"toTitle":      strings.ToTitle} {
		all[name] = pay(f)
	}
	all["base64Decode"] = func(s string) (string, error) {
		out, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return "", err
		}
		return string(out), b.Spend(len(out))
	}
	all["replaceAll"] = func(from, to, s string) (string, error) {
		if err := b.Spend(len(s) + strings.Count(s, from)*len(to)); err != nil {
			return "", err
		}
		return strings.ReplaceAll(s, from, to), nil
	}
	all["split"] = func(sep, s string) ([]string, error) { return strings.Split(s, sep), b.Spend(32 * (len(s) + 1)) }
	all["join"] = func(sep string, list any) (string, error) {
		var words []string
		switch list := list.(type) {
		case []string:
			words = list
		case []any:
			for _, v := range list {
				words = append(words, fmt.Sprint(v))
			}
		default:
			return "", fmt.Errorf("join: want a list, not %T", list)
		}
		n := 0
		for _, w := range words {
			n += len(w) + len(sep)
		}
		if err := b.Spend(n); err != nil {
			return "", err
		}
		return strings.Join(words, sep), nil
	}
	addText(all, b)
	addPlain(all)
	return all
}

// addText adds functions that make text of other things.
func addText(all template.FuncMap, b *safetemplate.Budget) {
	all["indent"] = func(n int, s string) (string, error) {
		if n < 0 || n > 100 {
			return "", fmt.Errorf("indent: %d is not from 0 to 100", n)
		}
		lines := strings.Split(s, "\n")
		if err := b.Spend(len(s) + n*len(lines)); err != nil {
			return "", err
		}
		return strings.Repeat(" ", n) + strings.Join(lines, "\n"+strings.Repeat(" ", n)), nil
	}
	toJSON := func(indent string) func(v any) (string, error) {
		return func(v any) (string, error) {
			text, err := json.MarshalIndent(v, "", indent)
			if indent == "" {
				text, err = json.Marshal(v)
			}
			if err != nil {
				return "", err
			}
			return string(text), b.Spend(len(text))
		}
	}
	all["toJSON"], all["toJSONPretty"] = toJSON(""), toJSON("  ")
	all["parseJSON"] = func(s string) (v any, err error) {
		if err := b.Spend(8 * len(s)); err != nil {
			return nil, err
		}
		return v, json.Unmarshal([]byte(s), &v)
	}
}

// addPlain adds functions that make nothing.
func addPlain(all template.FuncMap) {
	all["contains"] = func(part, s any) (bool, error) {
		switch s := s.(type) {
		case string:
			return strings.Contains(s, fmt.Sprint(part)), nil
		case []string:
			for _, v := range s {
				if v == fmt.Sprint(part) {
					return true, nil
				}
			}
			return false, nil
		}
		return false, fmt.Errorf("contains: want text or a list, not %T", s)
	}
	all["containsKey"] = func(key string, m map[string]any) bool { _, ok := m[key]; return ok }
	all["regexMatch"] = func(expr, s string) (bool, error) { return regexp.MatchString(expr, s) }
	all["trimPrefix"] = func(prefix, s string) string { return strings.TrimPrefix(s, prefix) }
	all["trimSuffix"] = func(suffix, s string) string { return strings.TrimSuffix(s, suffix) }
	all["parseInt"] = func(s string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(s), 10, 64) }
	all["parseFloat"] = func(s string) (float64, error) { return strconv.ParseFloat(strings.TrimSpace(s), 64) }
	all["parseBool"] = func(s string) (bool, error) { return strconv.ParseBool(strings.TrimSpace(s)) }
	arithmetic := func(f func(a, b int64) (int64, error)) func(b, a any) (int64, error) {
		return func(b, a any) (int64, error) {
			x, err := whole(a)
			if err != nil {
				return 0, err
			}
			y, err := whole(b)
			if err != nil {
				return 0, err
			}
			return f(x, y)
		}
	}
	all["add"] = arithmetic(func(a, b int64) (int64, error) { return a + b, nil })
	all["subtract"] = arithmetic(func(a, b int64) (int64, error) { return a - b, nil })
	all["multiply"] = arithmetic(func(a, b int64) (int64, error) { return a * b, nil })
	all["divide"] = arithmetic(func(a, b int64) (int64, error) {
		if b == 0 {
			return 0, fmt.Errorf("divide: by zero")
		}
		return a / b, nil
	})
	all["modulo"] = arithmetic(func(a, b int64) (int64, error) {
		if b == 0 {
			return 0, fmt.Errorf("modulo: by zero")
		}
		return a % b, nil
	})
}

func whole(v any) (int64, error) {
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case float64:
		return int64(v), nil
	case string:
		return strconv.ParseInt(v, 10, 64)
	}
	return 0, fmt.Errorf("%T is no number", v)
}

// lookups are the functions that read.
func (t *set) lookups() template.FuncMap {
	return template.FuncMap{
		"env":     func(name string) string { return t.work.Env.Vars[name] },
		"mustEnv": t.mustEnv,
		"envOrDefault": func(name, other string) string {
			if v, ok := t.work.Env.Vars[name]; ok {
				return v
			}
			return other
		},
		"file": func(name string) (string, error) { text, err := t.read(name); return string(text), err },
		"key":  func(name string) string { s, _ := t.value(Dep{Key, name}).(string); return s },
		"keyOrDefault": func(name, other string) string {
			if s, ok := t.value(Dep{Key, "?" + name}).(string); ok {
				return s
			}
			return other
		},
		"keyExists": func(name string) bool { return t.value(Dep{Key, "?" + name}) != nil },
		"ls":        func(name string) []Pair { return t.pairs(name, false) },
		"safeLs":    func(name string) []Pair { return t.pairs(name, false) },
		"tree":      func(name string) []Pair { return t.pairs(name, true) },
		"service": func(name string, _ ...string) []Instance {
			list, _ := t.value(Dep{Service, name}).([]Instance)
			return list
		},
		"nomadService": func(args ...any) ([]Instance, error) { return t.native(args) },
		"secret": func(name string, args ...string) (*SecretData, error) {
			if len(args) > 0 {
				return nil, fmt.Errorf("secret: writing to %s is not supported: read a path", name)
			}
			s, _ := t.value(Dep{Secret, name}).(*SecretData)
			return s, nil
		},
		"nomadVar":       func(name string) map[string]string { return t.variable(name) },
		"nomadVarExists": func(name string) bool { return t.value(Dep{Variable, "?" + name}) != nil },
	}
}

// value is what is known of d; the rendering needs it.
func (t *set) value(d Dep) any {
	t.seen[d] = true
	if v := t.values[d]; v.Found {
		return v.Data
	}
	return nil
}

func (t *set) mustEnv(name string) (string, error) {
	if v, ok := t.work.Env.Vars[name]; ok {
		return v, nil
	}
	return "", fmt.Errorf("the environment has no %s", name)
}

func (t *set) variable(name string) map[string]string {
	m, _ := t.value(Dep{Variable, name}).(map[string]string)
	return m
}

// pairs are the keys below a prefix; without deep those of its folder only.
func (t *set) pairs(name string, deep bool) (list []Pair) {
	name = strings.TrimSuffix(name, "/") + "/"
	all, _ := t.value(Dep{Keys, name}).([]Pair)
	for _, p := range all {
		p.Key = strings.TrimPrefix(p.Path, name)
		if p.Key != "" && (deep || !strings.Contains(p.Key, "/")) {
			list = append(list, p)
		}
	}
	return list
}

// native are native services; a number and a key before the name choose some.
func (t *set) native(args []any) ([]Instance, error) {
	if len(args) != 1 && len(args) != 3 {
		return nil, fmt.Errorf("nomadService: want a name, or a number, a key and a name")
	}
	name := fmt.Sprint(args[len(args)-1])
	if len(args) == 3 {
		name += "?choose=" + fmt.Sprint(args[0]) + "|" + fmt.Sprint(args[1])
	}
	list, _ := t.value(Dep{Native, name}).([]Instance)
	return list, nil
}
