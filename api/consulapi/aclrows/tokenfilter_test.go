package aclrows

import (
	"testing"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/filter"
)

func TestTokenFilter(t *testing.T) {
	for text, want := range map[string]bool{`Local == true`: true, `Description contains "deploy"`: true,
		`AuthMethod == "jwt"`: false} {
		f, err := filter.Compile(tokenSchema, text)
		if err != nil || f.Match(&acl.Token{Local: true, Description: "to deploy"}) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := filter.Compile(tokenSchema, `SecretID == "x"`); err == nil {
		t.Error("secrets are no field of filters")
	}
}
