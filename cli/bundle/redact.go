package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// hidden stands for what was taken out.
const hidden = "hidden"

// secretName are fields whose values never leave the cluster. Names of policies about
// tokens, TTLs and counters are no secrets: what ends in such a word, or is a number, stays.
var secretName = regexp.MustCompile(
	`(?i)(token|secret|password|passphrase|encrypt|private_?key|privatekeypem|key_pem|bearer|jwt|credential|authorization|^key$|^http_auth$)`)

var harmlessName = regexp.MustCompile(
	`(?i)(ttl|policy|policies|enabled|persistence|replication_enabled|verify|count|limit|cipher|file|path|type|_bits)$`)

var (
	// inText finds name=value and "name":"value" of secrets in lines of logs.
	inText = regexp.MustCompile(
		`(?i)((?:x-consul-token|secretid|secret_id|token|secret|password|encrypt|bearer|authorization)["']?\s*[=:]\s*["']?)(?:Bearer |Basic )?[^\s"',&}]+`)
	// gossipKey is 32 bytes in base64, as keys of gossip encryption are.
	gossipKey = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`)
	// pemKey is a private key.
	pemKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)
)

// Redactor takes secrets out of what is gathered. Profiles and traces hold names of
// functions and pass untouched.
type Redactor struct{ secrets []string }

// NewRedactor knows texts that are secret whatever stands around them. Short ones are
// left out: they would tear ordinary words apart.
func NewRedactor(secrets []string) *Redactor {
	r := &Redactor{}
	for _, s := range secrets {
		if len(s) >= 8 {
			r.secrets = append(r.secrets, s)
		}
	}
	return r
}

// File redacts the content of a file by what its name says it is.
func (r *Redactor) File(path string, content []byte) []byte {
	switch {
	case strings.HasSuffix(path, ".json"):
		var v any
		d := json.NewDecoder(bytes.NewReader(content))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return []byte(r.Line(string(content)))
		}
		text, err := indented(r.value(v))
		if err != nil {
			return []byte("(could not be redacted: " + err.Error() + ")\n")
		}
		return text
	case strings.HasSuffix(path, ".prof"), strings.HasSuffix(path, ".out"):
		return content
	}
	return []byte(r.Line(string(content)))
}

// value redacts JSON in place.
func (r *Redactor) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if s, ok := field.(string); ok && s != "" && secretName.MatchString(name) && !harmlessName.MatchString(name) {
				v[name] = hidden
				continue
			}
			v[name] = r.value(field)
		}
	case []any:
		for i, item := range v {
			v[i] = r.value(item)
		}
	case string:
		return r.plain(v)
	}
	return v
}

// Line redacts text.
func (r *Redactor) Line(text string) string {
	return r.plain(inText.ReplaceAllString(text, "${1}"+hidden))
}

// plain takes out what is secret by its own form.
func (r *Redactor) plain(text string) string {
	for _, s := range r.secrets {
		text = strings.ReplaceAll(text, s, hidden)
	}
	if strings.Contains(text, "PRIVATE KEY-----") {
		text = pemKey.ReplaceAllString(text, hidden)
	}
	return gossipKey.ReplaceAllString(text, hidden)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}
