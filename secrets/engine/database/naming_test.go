//go:build unix

package database

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

func TestNaming(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for template, want := range map[string]string{
		`{{ printf "v-%s-%s-%s-%s" (.DisplayName | truncate 8) (.RoleName | truncate 8) (random 20) (unix_time) | ` +
			`truncate 63 }}`: `^v-userpass-readonly-[a-zA-Z0-9]{20}-1700000000$`,
		`app-{{.RoleName | uppercase}}-{{timestamp "2006"}}`:                  `^app-READONLYROLE-2023$`,
		`{{.DisplayName | replace "-" "_" | lowercase}}_{{unix_time_millis}}`: `^userpass_ann_1700000000000$`,
		`{{.RoleName | sha256 | truncate_sha256 20}}`:                         `^[0-9a-f]{20}$`,
		`{{/* who */}}{{uuid}}`:                                               `^[0-9a-f-]{36}$`,
		`{{.DisplayName}}"; DROP TABLE x`:                                     "",
		`{{.DisplayName | base64}}{{"//"}}`:                                   "",
		`{{random 64}}`:                                                       "",
		`{{truncate 0 "x"}}`:                                                  "",
		`{{.Token}}`:                                                          "",
		`{{random 60}}{{random 60}}`:                                          "",
		`{{""}}`:                                                              "",
		`{{range 1000000000}}x{{end}}`:                                        "",
		`{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`:               "",
		`{{if true}}{{range 1000000000}}x{{end}}{{end}}`:                      "",
		`{{`: "",
	} {
		n, err := parseNaming(template, now, nameBytes)
		got := ""
		if err == nil {
			got, err = n.make("userpass-Ann", "readonlyrole")
		}
		if want == "" && err == nil || want != "" && !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, %v", template, got, err)
		}
	}
}

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
