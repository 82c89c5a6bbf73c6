package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// desk calls an engine as the keeper does: what it answers with is committed.
type desk struct {
	t      *testing.T
	engine engine.Engine
	store  *memstore.Store
	now    time.Time
}

func newDesk(t *testing.T, e engine.Engine) *desk {
	return &desk{t: t, engine: e, store: memstore.New(), now: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)}
}

func (d *desk) do(op secrets.Operation, path, body string) (*secrets.Response, error) {
	d.t.Helper()
	path, query, _ := strings.Cut(path, "?")
	values := map[string]any{}
	if name, value, ok := strings.Cut(query, "="); ok {
		values[name] = value
	}
	r := &secrets.Request{Op: op, Path: "secret/" + path, Mount: "secret/", Rest: path, Body: []byte(body),
		Query: secrets.FieldsOf(values), Now: d.now}
	ctx := context.Background()
	resp, err := d.engine.Handle(ctx, d.store, r)
	if err == nil && len(resp.Ops) > 0 {
		err = d.store.Commit(ctx, 0, resp.Ops)
	}
	return resp, err
}

// want calls and compares: "404", "400 text", or the data.
func (d *desk) want(op secrets.Operation, path, body, want string) {
	d.t.Helper()
	resp, err := d.do(op, path, body)
	got := ""
	switch {
	case errkind.Is(err, errkind.NotFound):
		got = "404"
	case errkind.Is(err, errkind.Invalid):
		got = "400 " + errkind.Text(err)
	case err != nil:
		got = err.Error()
	default:
		got = string(resp.Data)
		if resp.Missing {
			got = "404 " + got
		}
	}
	if got != want {
		d.t.Errorf("%v %s %s\n got %s\nwant %s", op, path, body, got, want)
	}
}

func TestV1(t *testing.T) {
	d := newDesk(t, V1{DefaultTTL: func() time.Duration { return 768 * time.Hour }})
	d.want(secrets.Read, "a", "", "404")
	d.want(secrets.Update, "a", `{"x": 1.50, "y":"z"}`, "")
	d.want(secrets.Read, "a", "", `{"x": 1.50, "y":"z"}`)
	d.want(secrets.Update, "a/b", `{"ttl":"30m"}`, "")
	d.want(secrets.List, "", "", `{"keys":["a","a/"]}`)
	d.want(secrets.List, "a/", "", `{"keys":["b"]}`)
	d.want(secrets.List, "?after=a", "", `{"keys":["a/"]}`)
	d.want(secrets.List, "none/", "", "404")
	d.want(secrets.Delete, "a", "", "")
	d.want(secrets.Read, "a", "", "404")
	for body, text := range map[string]string{"": "missing data fields", "{}": "missing data fields",
		" { } ": "missing data fields", "null": "missing data fields",
		"[1]":    "failed to parse JSON input: an object is expected",
		`{"a":}`: "failed to parse JSON input: an object is expected"} {
		d.want(secrets.Update, "bad", body, "400 "+text)
	}
	d.want(secrets.Update, "folder/", `{"a":1}`, "400 cannot write to a path ending in '/'")
	if resp, err := d.do(secrets.Read, "a/b", ""); err != nil || resp.LeaseTTL != 30*time.Minute {
		t.Errorf("the value's own ttl: %+v, %v", resp, err)
	}
}

const at = `"created_time":"2026-01-02T03:04:05.0000006Z"`

func version(n int, custom, deleted string, destroyed bool) string {
	return fmt.Sprintf(`{%s,"custom_metadata":%s,"deletion_time":"%s","destroyed":%t,"version":%d}`, at, custom, deleted,
		destroyed, n)
}

func TestV2(t *testing.T) {
	d := newDesk(t, V2{})
	d.want(secrets.Read, "data/a", "", "404")
	d.want(secrets.Create, "data/a", `{"data":{"x":"1"}}`, version(1, "null", "", false))
	d.want(secrets.Update, "data/a", `{"data":{"x":"2","deep":{"y":1}},"options":{"cas":1}}`,
		version(2, "null", "", false))
	d.want(secrets.Read, "data/a", "", `{"data":{"x":"2","deep":{"y":1}},"metadata":`+version(2, "null", "", false)+`}`)
	d.want(secrets.Read, "data/a?version=1", "", `{"data":{"x":"1"},"metadata":`+version(1, "null", "", false)+`}`)
	d.want(secrets.Read, "data/a?version=9", "", "404")
	d.want(secrets.Read, "data/a?version=x", "", `400 field "version": must be a whole number`)
	d.want(secrets.Update, "data/a", `{"data":{},"options":{"cas":1}}`,
		"400 check-and-set parameter did not match the current version")
	d.want(secrets.Update, "data/a", `{"x":1}`, "400 no data provided")
	d.want(secrets.Update, "data/a", `{"data":[1]}`, `400 field "data": must be an object`)
	d.want(secrets.Patch, "data/a", `{"data":{"x":null,"deep":{"z":2}},"options":{"cas":2}}`,
		version(3, "null", "", false))
	d.want(secrets.Read, "subkeys/a", "", `{"metadata":`+version(3, "null", "", false)+
		`,"subkeys":{"deep":{"y":null,"z":null}}}`)
	d.want(secrets.Read, "subkeys/a?depth=1", "", `{"metadata":`+version(3, "null", "", false)+`,"subkeys":{"deep":null}}`)
	const deleted = "2026-01-02T03:04:05.0000006Z"
	d.want(secrets.Delete, "data/a", "", "")
	d.want(secrets.Read, "data/a", "", `404 {"data":null,"metadata":`+version(3, "null", deleted, false)+`}`)
	d.want(secrets.Patch, "data/a", `{"data":{"x":1}}`, "404")
	d.want(secrets.Update, "undelete/a", `{"versions":[3]}`, "")
	d.want(secrets.Read, "data/a", "", `{"data":{"deep":{"y":1,"z":2}},"metadata":`+version(3, "null", "", false)+`}`)
	d.want(secrets.Update, "destroy/a", `{"versions":"1, 3"}`, "")
	d.want(secrets.Read, "data/a", "", `404 {"data":null,"metadata":`+version(3, "null", "", true)+`}`)
	d.want(secrets.Update, "undelete/a", `{"versions":[3]}`, "")
	d.want(secrets.Read, "data/a?version=1", "", `404 {"data":null,"metadata":`+version(1, "null", "", true)+`}`)
	d.want(secrets.Update, "delete/a", `{}`, "400 no version number provided")
	d.want(secrets.Create, "data/a/b", `{"data":{"k":1}}`, version(1, "null", "", false))
	d.want(secrets.List, "metadata/", "", `{"keys":["a","a/"]}`)
	d.want(secrets.Delete, "metadata/a", "", "")
	d.want(secrets.List, "metadata", "", `{"keys":["a/"]}`)
	d.want(secrets.Read, "data/a?version=2", "", "404")
	if left, _ := d.store.Scan(t.Context(), "", "", 0); len(left) != 2 {
		t.Errorf("%d records are left of one path with one version", len(left))
	}
}

func TestV2Settings(t *testing.T) {
	d := newDesk(t, V2{})
	d.want(secrets.Read, "config", "", `{"cas_required":false,"delete_version_after":"0s","max_versions":0,`+
		`"metadata_cas_required":false}`)
	d.want(secrets.Update, "config", `{"max_versions":"3","cas_required":true,"delete_version_after":"1h"}`, "")
	d.want(secrets.Read, "config", "", `{"cas_required":true,"delete_version_after":"1h0m0s","max_versions":3,`+
		`"metadata_cas_required":false}`)
	d.want(secrets.Create, "data/a", `{"data":{"x":1}}`, "400 check-and-set parameter required for this call")
	for n := range 5 {
		if _, err := d.do(secrets.Update, "data/a", fmt.Sprintf(`{"data":{"n":%d},"options":{"cas":%d}}`, n, n)); err != nil {
			t.Fatal(err)
		}
	}
	d.want(secrets.Read, "data/a?version=2", "", "404")
	d.want(secrets.Update, "metadata/a", `{"custom_metadata":{"owner":"team"},"max_versions":2}`, "")
	d.want(secrets.Patch, "metadata/a", `{"custom_metadata":{"tier":"1"}}`, "")
	d.want(secrets.Patch, "metadata/none", `{}`, "404")
	d.want(secrets.Update, "metadata/a", `{"custom_metadata":{"":"x"}}`,
		`400 field "custom_metadata": keys have 1 to 128 bytes and values at most 512: ""`)
	resp, err := d.do(secrets.Read, "metadata/a", "")
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Current  int               `json:"current_version"`
		Oldest   int               `json:"oldest_version"`
		Max      int               `json:"max_versions"`
		Custom   map[string]string `json:"custom_metadata"`
		Versions map[string]any    `json:"versions"`
	}
	if err := json.Unmarshal(resp.Data, &meta); err != nil || meta.Current != 5 || meta.Oldest != 3 || meta.Max != 2 ||
		len(meta.Versions) != 3 || meta.Custom["owner"] != "team" || meta.Custom["tier"] != "1" {
		t.Errorf("metadata %+v of %s, %v", meta, resp.Data, err)
	}
	d.now = d.now.Add(2 * time.Hour) // past delete_version_after
	if resp, err := d.do(secrets.Read, "data/a", ""); err != nil || !resp.Missing {
		t.Errorf("a version outlived delete_version_after: %s, %v", resp.Data, err)
	}
	// as of version 1
	for _, op := range []secrets.Operation{secrets.Read, secrets.Update, secrets.Patch, secrets.Delete, secrets.List} {
		if resp, err := d.do(op, "a", `{"x":1}`); err != nil || !resp.Missing || resp.Data != nil || len(resp.Ops) != 0 ||
			fmt.Sprint(resp.Warnings) != "["+wrongPath+"]" {
			t.Errorf("%v of a path without its kind: %+v, %v", op, resp, err)
		}
	}
	d.want(secrets.Read, "data", "", "400 missing path")
}

// The settings of a path may ask for the number of their last write.
func TestV2SettingsByTheirNumber(t *testing.T) {
	d := newDesk(t, V2{})
	d.want(secrets.Update, "metadata/a", `{"metadata_cas":0,"max_versions":3}`, "")
	d.want(secrets.Update, "metadata/a", `{"metadata_cas":0,"max_versions":4}`,
		"400 metadata check-and-set parameter did not match the current version")
	d.want(secrets.Patch, "metadata/a", `{"metadata_cas":1,"metadata_cas_required":true}`, "")
	d.want(secrets.Update, "metadata/a", `{"max_versions":5}`,
		"400 metadata check-and-set parameter required for this call")
	d.want(secrets.Update, "config", `{"metadata_cas_required":true}`, "")
	d.want(secrets.Update, "metadata/b", `{"max_versions":5}`,
		"400 metadata check-and-set parameter required for this call")
	if _, err := d.do(secrets.Update, "data/a", `{"data":{"x":1}}`); err != nil {
		t.Errorf("data asks for no number of metadata: %v", err)
	}
	stamp := `"2026-01-02T03:04:05.0000006Z"`
	about := `{"cas_required":false,"created_time":` + stamp + `,"current_metadata_version":2,"current_version":1,` +
		`"custom_metadata":null,"delete_version_after":"0s","max_versions":3,"metadata_cas_required":true,` +
		`"oldest_version":1,"updated_time":` + stamp + `,"versions":{"1":{"created_time":` + stamp +
		`,"deletion_time":"","destroyed":false}}}`
	d.want(secrets.Read, "metadata/a", "", about)
	if _, err := d.do(secrets.Update, "data/a/below", `{"data":{"x":1}}`); err != nil {
		t.Fatal(err)
	}
	d.want(secrets.List, "detailed-metadata/", "", `{"key_info":{"a":`+about+`},"keys":["a","a/"]}`)
	d.want(secrets.List, "detailed-metadata/?after=a", "", `{"key_info":{},"keys":["a/"]}`)
	d.want(secrets.List, "detailed-metadata/none", "", "404")
}

// A model of one path against random calls.
func TestV2AgainstAModel(t *testing.T) {
	type state struct {
		value   int
		deleted bool
		gone    bool
	}
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(t, V2{})
		var versions []state
		for range 60 {
			n := 1 + rng.IntN(len(versions)+1)
			body := fmt.Sprintf(`{"versions":[%d]}`, n)
			there := n <= len(versions) && n > len(versions)-defaultMaxVersions
			switch rng.IntN(5) {
			case 0, 1:
				cas := rng.IntN(len(versions) + 2)
				_, err := d.do(secrets.Update, "data/a", fmt.Sprintf(`{"data":{"v":%d},"options":{"cas":%d}}`,
					len(versions)+1, cas))
				if (err == nil) != (cas == len(versions)) {
					t.Fatalf("cas %d at version %d: %v", cas, len(versions), err)
				}
				if err == nil {
					versions = append(versions, state{value: len(versions) + 1})
				}
			case 2:
				d.want(secrets.Update, "delete/a", body, "")
				if there && !versions[n-1].gone {
					versions[n-1].deleted = true
				}
			case 3:
				d.want(secrets.Update, "undelete/a", body, "")
				if there && !versions[n-1].gone {
					versions[n-1].deleted = false
				}
			case 4:
				d.want(secrets.Update, "destroy/a", body, "")
				if there {
					versions[n-1].gone = true
				}
			}
			for i, v := range versions {
				resp, err := d.do(secrets.Read, fmt.Sprintf("data/a?version=%d", i+1), "")
				kept := i+1 > len(versions)-defaultMaxVersions
				readable := err == nil && !resp.Missing &&
					strings.HasPrefix(string(resp.Data), fmt.Sprintf(`{"data":{"v":%d},`, v.value))
				if kept != (err == nil) || readable != (kept && !v.deleted && !v.gone) {
					t.Fatalf("seed %d: version %d of %d, %+v: %v, %v", seed, i+1, len(versions), v, resp, err)
				}
			}
		}
	}
}
