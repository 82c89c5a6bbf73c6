package naming

import (
	"regexp"
	"testing"
	"time"
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
		n, err := Parse("username_template", template, now, nil)
		got := ""
		if err == nil {
			got, err = n.Make("userpass-Ann", "readonlyrole", Rules{Most: 63, Unfit: "\"'\\;\x00\r\n/"})
		}
		if want == "" && err == nil || want != "" && !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, %v", template, got, err)
		}
	}
}
