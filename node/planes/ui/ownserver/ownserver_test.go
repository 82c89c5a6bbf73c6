package ownserver

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Members are counted by key, and no key is told.
func TestKeys(t *testing.T) {
	const old, fresh = "pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s=", "cg8StVXbQJ0gPvMd9o7yrg=="
	got := Keys([]byte(`[{"WAN":true,"Keys":{"` + old + `":1},"PrimaryKeys":{"` + old + `":1},"NumNodes":1},
		{"Keys":{"` + old + `":3,"` + fresh + `":2},"PrimaryKeys":{"` + old + `":3},"NumNodes":3}]`))
	name := func(i int) string { return got[i].Name }
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	want := []Key{{"LAN", name(0), 3, 3, 3}, {"LAN", name(1), 2, 0, 3}, {"WAN", name(0), 1, 1, 1}}
	if !reflect.DeepEqual(got, want) || name(0) == name(1) || len(name(0)) != 8 {
		t.Errorf("%+v", got)
	}
	if text, _ := json.Marshal(got); strings.Contains(string(text), old[:8]) {
		t.Errorf("a key is told: %s", text)
	}
}

func TestDiskAndSnapshot(t *testing.T) {
	r := telemetry.New(telemetry.Config{})
	if d := DiskOf(r); d != nil {
		t.Errorf("before a sample: %+v", d)
	}
	r.Gauge("host.disk.size", "path", "/data").Set(1000)
	r.Gauge("host.disk.available", "path", "/data").Set(400)
	if d := DiskOf(r); d == nil || *d != (Disk{"/data", 1000, 400}) {
		t.Errorf("the disk is %+v", d)
	}
	if s := snapshotOf(map[string]string{"last_snapshot_index": "0"}); s != nil {
		t.Errorf("before the first: %+v", s)
	}
	s := snapshotOf(map[string]string{"snapshot_bytes": "12", "last_snapshot_index": "7",
		"snapshot_time": "2026-01-01T00:00:00Z"})
	if s == nil || *s != (Snapshot{12, 7, 1767225600000}) {
		t.Errorf("the snapshot is %+v", s)
	}
}

// A cell is the changes that were acknowledged in its time and took as long; a proxy that answered nothing since is not
// asked, and one that has gone is left out.
func TestAppliedIn(t *testing.T) {
	const list = `{"List":[{"Node":"n","ID":"web","Answered":"2026-01-01T00:00:05Z"},
		{"Node":"n","ID":"old","Answered":"2025-12-31T23:00:00Z"},
		{"Node":"n 2","ID":"a/b","Answered":"2026-01-01T00:00:05Z"}]}`
	const web = `{"Node":"n","ID":"web","Service":"web","Details":[
		{"Type":"endpoints","Name":"fast","Changed":"2026-01-01T00:00:01Z",
			"AppliedAt":"2026-01-01T00:00:01.004Z","TookMillis":4},
		{"Type":"endpoints","Name":"slow","Changed":"2026-01-01T00:00:01Z",
			"AppliedAt":"2026-01-01T00:00:01.2Z","TookMillis":200},
		{"Type":"endpoints","Name":"later","Changed":"2026-01-01T00:00:05Z",
			"AppliedAt":"2026-01-01T00:00:05Z","TookMillis":5},
		{"Type":"clusters","Name":"no news","AppliedAt":"2026-01-01T00:00:01Z"}]}`
	var asked []string
	get := func(path string, into any) error {
		asked = append(asked, path)
		switch path {
		case "/v1/internal/mesh/proxies?all":
			return json.Unmarshal([]byte(list), into)
		case "/v1/internal/mesh/proxy/web?node=n":
			return json.Unmarshal([]byte(web), into)
		}
		return errkind.New(errkind.NotFound, "no such proxy")
	}
	names := func(query string) (out []string) {
		t.Helper()
		q, _ := url.ParseQuery(query)
		v, err := AppliedIn(q, get)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.Rows {
			out = append(out, r.Resource)
		}
		return out
	}
	const within = "from=1767225600000&to=1767225603000"
	if got := names(within + "&low=0&high=0"); !reflect.DeepEqual(got, []string{"slow", "fast"}) {
		t.Errorf("however long: %q", got)
	}
	if got := names(within + "&low=2&high=5.6"); !reflect.DeepEqual(got, []string{"fast"}) {
		t.Errorf("about 4 ms: %q", got)
	}
	want := []string{"/v1/internal/mesh/proxies?all", "/v1/internal/mesh/proxy/web?node=n",
		"/v1/internal/mesh/proxy/a%2Fb?node=n+2"}
	if !reflect.DeepEqual(asked[:3], want) {
		t.Errorf("asked for %q", asked[:3])
	}
	for _, query := range []string{"", within, within + "&low=x&high=1", within + "&low=NaN&high=1",
		within + "&low=-1&high=1"} {
		q, _ := url.ParseQuery(query)
		if _, err := AppliedIn(q, get); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%q: %v", query, err)
		}
	}
}
