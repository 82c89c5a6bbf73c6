package vaultcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"go.yaml.in/yaml/v3"
)

// Columns prints rows under their heads, each underlined, with four spaces between, as Vault does.
func (c *Call) Columns(head []string, rows [][]string) error {
	t := command.Table{Gap: 4}
	under := make([]string, len(head))
	for i, h := range head {
		under[i] = strings.Repeat("-", len(h))
	}
	if head != nil {
		t.Add(head...)
		t.Add(under...)
	}
	for _, r := range rows {
		t.Add(r...)
	}
	return t.Write(c.Out)
}

// Pairs prints a table of keys and values.
func (c *Call) Pairs(rows [][]string) error { return c.Columns([]string{"Key", "Value"}, rows) }

// Structured prints v as JSON or YAML where that was asked for; done tells whether it did.
func (c *Call) Structured(v any) (done bool, err error) {
	switch c.Format {
	case "json", "raw":
		enc := json.NewEncoder(c.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return true, enc.Encode(v)
	case "yaml":
		text, err := json.Marshal(v)
		if err != nil {
			return true, err
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var plain any
		if err := dec.Decode(&plain); err != nil {
			return true, err
		}
		enc := yaml.NewEncoder(c.Out)
		enc.SetIndent(2)
		if err := enc.Encode(plainNumbers(plain)); err != nil {
			return true, err
		}
		return true, enc.Close()
	}
	return false, nil
}

// Structured prints v as JSON or YAML where that is the format; done tells whether it did.
func Structured(e *command.Env, format string, v any) (done bool, err error) {
	return (&Call{Env: e, Format: format}).Structured(v)
}

// plainNumbers makes numbers of json.Number, which YAML would write as text.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder let it pass as a number
		return f
	case map[string]any:
		for k, w := range v {
			v[k] = plainNumbers(w)
		}
	case []any:
		for i, w := range v {
			v[i] = plainNumbers(w)
		}
	}
	return v
}

// envelope prints the whole answer in another format than a table.
func (c *Call) envelope(a *vault.Answer) (done bool, err error) {
	if c.Format == "table" {
		return false, nil
	}
	if c.Format == "raw" {
		_, err := c.Out.Write(a.Raw)
		return true, err
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(a.Raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return true, fmt.Errorf("the answer is no JSON: %w; -format=raw prints it as it is", err)
	}
	return c.Structured(v)
}

// value is how a table shows v.
func value(key string, v any) string {
	switch v := v.(type) {
	case nil:
		return "<nil>"
	case json.Number:
		if durationKey(key) {
			if n, err := v.Int64(); err == nil {
				return human(n)
			}
		}
		return v.String()
	case string:
		return v
	}
	return PlainText(v)
}

// PlainText writes lists as [a b] and objects as map[k:v].
func PlainText(v any) string {
	switch v := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range command.SortedKeys(v) {
			parts = append(parts, k+":"+PlainText(v[k]))
		}
		return "map[" + strings.Join(parts, " ") + "]"
	case []any:
		parts := make([]string, len(v))
		for i, w := range v {
			parts[i] = PlainText(w)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case nil:
		return "<nil>"
	}
	return fmt.Sprint(v)
}

// durationKey tells keys whose numbers are seconds.
func durationKey(key string) bool {
	for _, word := range []string{"ttl", "period", "duration"} {
		if key == word || strings.HasSuffix(key, "_"+word) {
			return true
		}
	}
	return key == "lease_max" || key == "ttl_max"
}

// human writes seconds without parts that are nought: 768h, 1h30m, 45s.
func human(seconds int64) string {
	text := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// dataRows are the rows of an object, by name.
func dataRows(data map[string]any) [][]string {
	rows := make([][]string, 0, len(data))
	for _, k := range command.SortedKeys(data) {
		rows = append(rows, []string{k, value(k, data[k])})
	}
	return rows
}

// quoted is a list of policies as Vault's tables have it.
func quoted(list []string) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = fmt.Sprintf("%q", p)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// authRows are the rows of a token that the answer brings.
func authRows(a *vault.Auth) [][]string {
	duration := "∞"
	if a.LeaseDuration > 0 {
		duration = human(a.LeaseDuration)
	}
	policies := a.Policies
	if a.TokenPolicies == nil {
		a.TokenPolicies = policies
	}
	rows := [][]string{{"token", a.ClientToken}, {"token_accessor", a.Accessor}, {"token_duration", duration},
		{"token_renewable", fmt.Sprint(a.Renewable)},
		{"token_policies", quoted(a.TokenPolicies)}, {"identity_policies", quoted(a.IdentityPolicies)},
		{"policies", quoted(policies)}}
	for _, k := range command.SortedKeys(a.Metadata) {
		rows = append(rows, []string{"token_meta_" + k, a.Metadata[k]})
	}
	return rows
}

func wrapRows(w *vault.WrapInfo) [][]string {
	rows := [][]string{{"wrapping_token", w.Token}, {"wrapping_accessor", w.Accessor},
		{"wrapping_token_ttl", human(w.TTL)},
		{"wrapping_token_creation_time", w.CreationTime}, {"wrapping_token_creation_path", w.CreationPath}}
	if w.WrappedAccessor != "" {
		rows = append(rows, []string{"wrapped_accessor", w.WrappedAccessor})
	}
	return rows
}

// Secret prints an answer: the field that was asked for, the envelope, or a table.
func (c *Call) Secret(a *vault.Answer) error {
	c.warn(a)
	if c.Field != "" {
		return c.fieldOf(a)
	}
	if done, err := c.envelope(a); done {
		return err
	}
	switch {
	case a.Wrap != nil:
		return c.Pairs(wrapRows(a.Wrap))
	case a.Auth != nil:
		return c.Pairs(authRows(a.Auth))
	}
	var rows [][]string
	switch {
	case a.LeaseID != "":
		rows = [][]string{{"lease_id", a.LeaseID}, {"lease_duration", human(a.LeaseDuration)},
			{"lease_renewable", fmt.Sprint(a.Renewable)}}
	case a.LeaseDuration > 0:
		rows = [][]string{{"refresh_interval", human(a.LeaseDuration)}}
	}
	data := a.Data
	if data == nil && a.LeaseID == "" { // an answer without the envelope: sys/seal-status, sys/leader
		var bare map[string]any
		dec := json.NewDecoder(bytes.NewReader(a.Raw))
		dec.UseNumber()
		if dec.Decode(&bare) == nil && bare["request_id"] == nil {
			data = bare
		}
	}
	return c.Pairs(append(rows, dataRows(data)...))
}

// warn prints the server's warnings to stderr.
func (c *Call) warn(a *vault.Answer) {
	if len(a.Warnings) == 0 || c.Format != "table" {
		return
	}
	fmt.Fprint(c.Err, "WARNING! The following warnings were returned from Vault:\n\n")
	for _, w := range a.Warnings {
		fmt.Fprintf(c.Err, "  * %s\n", w)
	}
	fmt.Fprintln(c.Err)
}

// fieldOf prints one field of an answer: what the table calls it, or a member of its data.
func (c *Call) fieldOf(a *vault.Answer) error {
	if a.Auth != nil {
		fields := map[string]any{"token": a.Auth.ClientToken, "token_accessor": a.Auth.Accessor,
			"token_duration":  a.Auth.LeaseDuration,
			"token_renewable": a.Auth.Renewable, "token_policies": a.Auth.TokenPolicies, "policies": a.Auth.Policies,
			"identity_policies": a.Auth.IdentityPolicies}
		if v, ok := fields[c.Field]; ok {
			return c.bare(v)
		}
	}
	if a.Wrap != nil {
		for _, r := range wrapRows(a.Wrap) {
			if r[0] == c.Field {
				return c.bare(r[1])
			}
		}
	}
	switch c.Field {
	case "lease_id":
		return c.bare(a.LeaseID)
	case "lease_duration", "refresh_interval":
		return c.bare(a.LeaseDuration)
	case "lease_renewable":
		return c.bare(a.Renewable)
	}
	return c.Member(a.Data)
}

// Member prints the field that was asked for out of data.
func (c *Call) Member(data map[string]any) error {
	v, ok := data[c.Field]
	if !ok {
		return fmt.Errorf("Field %q not present in secret", c.Field)
	}
	return c.bare(v)
}

// bare prints a value alone; a terminal gets a line end, a pipe the value and nothing else.
func (c *Call) bare(v any) error {
	if c.Format != "table" && c.Format != "raw" {
		_, err := c.Structured(v)
		return err
	}
	text := PlainText(v)
	if f, ok := c.Out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			text += "\n"
		}
	}
	_, err := fmt.Fprint(c.Out, text)
	return err
}

// Texts are the strings of a list.
func Texts(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, w := range list {
		out = append(out, fmt.Sprint(w))
	}
	return out
}

// keys prints the names that a LIST brought.
func (c *Call) keys(a *vault.Answer) error {
	c.warn(a)
	names := Texts(a.Data["keys"])
	if done, err := c.Structured(names); done {
		return err
	}
	sort.Strings(names)
	return c.column("Keys", names)
}

func (c *Call) column(head string, names []string) error {
	rows := make([][]string, len(names))
	for i, n := range names {
		rows[i] = []string{n}
	}
	return c.Columns([]string{head}, rows)
}

// titled prints a head between = signs, as wide as what stands below it.
func (c *Call) titled(title string, width int) error {
	signs := max(width-len(title)-2, 3)
	side := strings.Repeat("=", (signs+1)/2)
	return c.Printf("%s %s %s\n", side, title, side)
}

// titledPairs prints a head and the table below it.
func (c *Call) titledPairs(title string, data map[string]any) error {
	const between, valueHead = 4, 5
	longest := 0
	for _, k := range command.SortedKeys(data) {
		longest = max(longest, len(k))
	}
	if err := c.titled(title, longest+between+valueHead); err != nil {
		return err
	}
	return c.Pairs(dataRows(data))
}

// Success says what was done; other formats than tables say nothing then.
func (c *Call) Success(format string, args ...any) error {
	if c.Format == "json" || c.Format == "yaml" {
		return nil
	}
	return c.Printf("Success! "+format+"\n", args...)
}
