//go:build unix

package database

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Names and passwords are as the configuration says.
func TestPolicyAndTemplate(t *testing.T) {
	d, _ := newDesk(t)
	drawn := 0
	d.Engine.(*Engine).Password = func(_ context.Context, policy string) (string, error) {
		if policy != "pins" {
			return "", errkind.Errorf(errkind.Invalid, "password policy %q is not there", policy)
		}
		if drawn++; drawn%2 == 0 {
			return `it's`, nil // cannot stand in statements: another is drawn
		}
		return strings.Repeat("7", 12), nil
	}
	d.OK(secrets.Update, "config/pg", body{"password_policy": "pins",
		"username_template": `app_{{.RoleName}}_{{random 8}}`})
	if got := d.OK(secrets.Read, "config/pg", nil); got.Text("password_policy") != "pins" {
		t.Error(got)
	}
	for range 3 {
		got := d.OK(secrets.Read, "creds/app", nil)
		if !regexp.MustCompile(`^app_app_[a-zA-Z0-9]{8}$`).MatchString(got.Text("username")) ||
			got.Text("password") != "777777777777" {
			t.Errorf("%s, %s", got.Text("username"), got.Text("password"))
		}
	}
	d.Refused(errkind.Invalid, "is not there", secrets.Update, "config/pg", body{"password_policy": "none"})
	d.Refused(errkind.Invalid, "username_template", secrets.Update, "config/pg", body{"username_template": "{{.Nobody}}"})
	d.OK(secrets.Update, "config/pg", body{"password_policy": "", "username_template": ""})
	if got := d.OK(secrets.Read, "creds/app", nil); !strings.HasPrefix(got.Text("username"), "v-") {
		t.Error(got.Text("username"))
	}
}
