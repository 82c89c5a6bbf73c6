package cloudjoin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/kit/nearest"
)

// maxEntry bounds the text of an entry, in bytes.
const maxEntry = 16 << 10

// providers are the clouds that are asked, with what they understand beside "provider".
var providers = map[string][]string{
	"aws": {"region", "tag_key", "tag_value", "addr_type", "access_key_id", "secret_access_key", "session_token",
		"service", "ecs_cluster", "ecs_family", "endpoint"},
	"azure": {"tenant_id", "client_id", "subscription_id", "secret_access_key", "environment", "tag_name", "tag_value",
		"resource_group", "vm_scale_set"},
	"digitalocean": {"region", "tag_name", "api_token"},
	"gce":          {"project_name", "tag_value", "zone_pattern", "credentials_file"},
	"k8s":          {"kubeconfig", "namespace", "label_selector", "field_selector", "host_network"},
	"linode":       {"region", "tag_name", "api_token", "address_type"},
	"mdns":         {"service", "domain", "timeout", "v4", "v6"},
	"os": {"auth_url", "project_id", "domain_id", "domain_name", "region", "tag_key", "tag_value", "user_name",
		"password", "token", "insecure"},
}

// Providers are the names of the clouds that are asked.
func Providers() []string { return slices.Sorted(maps.Keys(providers)) }

// secret are the values that nobody is shown.
var secret = []string{"access_key_id", "secret_access_key", "session_token", "api_token", "password", "token"}

// Is reports whether an address to join is an entry for a cloud.
func Is(addr string) bool {
	for rest := addr; ; {
		i := strings.Index(rest, "provider=")
		if i < 0 {
			return false
		}
		if i == 0 || rest[i-1] == ' ' || rest[i-1] == '\t' {
			return true
		}
		rest = rest[i+len("provider="):]
	}
}

// Entry is what to ask which cloud. The zero value is not usable; Parse makes one.
type Entry struct{ args map[string]string }

// Parse reads key=value pairs, separated by blanks. A value with blanks, quotes or an equals sign is in double quotes,
// in which a backslash escapes, or in single quotes, in which it does not. It fails for what the named provider does
// not understand.
func Parse(text string) (Entry, error) {
	if len(text) > maxEntry {
		return Entry{}, fmt.Errorf("an entry of more than %d bytes", maxEntry)
	}
	args := map[string]string{}
	for rest := strings.TrimLeft(text, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		key, after, ok := strings.Cut(rest, "=")
		if !ok || key == "" || strings.ContainsAny(key, " \t\"'") {
			return Entry{}, fmt.Errorf("key=value is expected where %q begins", shorten(key))
		}
		value, left, err := cutValue(after)
		if err != nil {
			return Entry{}, fmt.Errorf("%s: %w", key, err)
		}
		if _, twice := args[key]; twice {
			return Entry{}, fmt.Errorf("%s: it is there twice", key)
		}
		args[key], rest = value, left
	}
	return Entry{args}, check(args)
}

// shorten keeps a word out of errors that may be the rest of a credential.
func shorten(word string) string {
	const most = 20
	if len(word) > most {
		return word[:most] + "..."
	}
	return word
}

// cutValue takes the value that s begins with.
func cutValue(s string) (value, rest string, err error) {
	switch {
	case strings.HasPrefix(s, `"`):
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("the quoted value has no end, or an escape that is unknown")
		}
		value, err = strconv.Unquote(quoted)
		if err != nil {
			return "", "", err
		}
		rest = s[len(quoted):]
	case strings.HasPrefix(s, "'"):
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 {
			return "", "", fmt.Errorf("the quoted value has no end")
		}
		value, rest = s[1:1+end], s[end+2:]
	default:
		if i := strings.IndexAny(s, " \t"); i >= 0 {
			value, rest = s[:i], s[i:]
		} else {
			value = s
		}
		if strings.Contains(value, "=") {
			return "", "", fmt.Errorf("a value with an equals sign is put into quotes")
		}
	}
	if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "", "", fmt.Errorf("a blank is expected after the quoted value")
	}
	return value, rest, nil
}

func check(args map[string]string) error {
	name := args["provider"]
	known, ok := providers[name]
	if !ok {
		return fmt.Errorf("provider: %q is none of %s", name, strings.Join(Providers(), ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(args)) {
		if key == "provider" || slices.Contains(known, key) {
			continue
		}
		return fmt.Errorf("%s: %s does not understand it%s (it understands %s)", key, name,
			nearest.Hint(key, slices.Values(known)), strings.Join(known, ", "))
	}
	return nil
}

// Provider is the cloud's name.
func (e Entry) Provider() string { return e.args["provider"] }

// Args are all pairs, credentials too, as a map of the caller's own.
func (e Entry) Args() map[string]string { return maps.Clone(e.args) }

// String is the entry as it may be shown: credentials are left out.
func (e Entry) String() string {
	out := []string{"provider=" + e.Provider()}
	for _, key := range slices.Sorted(maps.Keys(e.args)) {
		value := e.args[key]
		switch {
		case key == "provider":
			continue
		case slices.Contains(secret, key):
			value = "<hidden>"
		case value == "" || strings.ContainsAny(value, " '=") || strconv.Quote(value) != `"`+value+`"`:
			value = strconv.Quote(value)
		}
		out = append(out, key+"="+value)
	}
	return strings.Join(out, " ")
}

// Shown are addresses to join as they may be shown: without the credentials of those that are entries for clouds.
func Shown(addrs []string) []string {
	out := slices.Clone(addrs)
	for i, addr := range out {
		if !Is(addr) {
			continue
		}
		if e, err := Parse(addr); err == nil {
			out[i] = e.String()
		} else {
			out[i] = "provider=..."
		}
	}
	return out
}

// Hide replaces the entry's credentials in a text that somebody else wrote.
func (e Entry) Hide(text string) string {
	const least = 4 // what is shorter is no credential, and part of many words
	for _, key := range secret {
		if value := e.args[key]; len(value) >= least {
			text = strings.ReplaceAll(text, value, "<hidden>")
		}
	}
	return text
}
