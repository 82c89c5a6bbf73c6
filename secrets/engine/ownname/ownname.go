// Package ownname fills in templates of roles that name who asks, as "{{identity.entity.name}}". Pure.
package ownname

import (
	"slices"
	"strings"

	"corbel.dev/corbel/secrets"
)

// All fills in templates. One that names what its caller does not have allows nothing, and neither does a value
// that would widen it: whoever chose their own name must not be able to choose a pattern.
func All(list []string, who secrets.Identity) []string {
	var out []string
	for _, text := range list {
		if filled, ok := Fill(text, who); ok {
			out = append(out, filled)
		}
	}
	return slices.Clip(out)
}

// Fill fills in one template; ok is false where All would leave it out.
func Fill(text string, who secrets.Identity) (filled string, ok bool) {
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(text, "{{")
		out.WriteString(before)
		if !more {
			return out.String(), true
		}
		name, after, ok := strings.Cut(rest, "}}")
		if !ok || who == nil {
			return "", false
		}
		value, ok := who.Variable(strings.TrimSpace(name))
		if !ok || value == "" || strings.ContainsAny(value, "*{},") {
			return "", false
		}
		out.WriteString(value)
		text = after
	}
}
