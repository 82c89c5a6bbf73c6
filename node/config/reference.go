package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Reference is the table of the keys of planes' sections, for docs/configuration.md, which a test keeps equal to it.
// sections are as in Options.
func Reference(sections map[string]func() any) string {
	s := &schema{keys: map[string]*key{}, sections: map[string]bool{}}
	for name, keys := range sections {
		s.walk(reflect.ValueOf(keys()).Elem(), name+".")
	}
	return s.table()
}

// table has a row for each key, in order.
func (s *schema) table() string {
	var b strings.Builder
	b.WriteString("| key | default | | meaning |\n|---|---|---|---|\n")
	for _, path := range slices.Sorted(slices.Values(s.order)) {
		k, marks := s.keys[path], ""
		if k.reload {
			marks = "reload"
		}
		def := k.def
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, def, marks, strings.ReplaceAll(k.doc, "|", "\\|"))
	}
	return b.String()
}
