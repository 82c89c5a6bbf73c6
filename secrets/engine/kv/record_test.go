package kv

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Custom(func(t *rapid.T) time.Time {
			if rapid.Bool().Draw(t, "none") {
				return time.Time{}
			}
			return time.Unix(rapid.Int64Range(-1e9, 250_000_000_000).Draw(t, "second"),
				rapid.Int64Range(0, 999_999_999).Draw(t, "nano")).UTC()
		})
		h := head{Current: rapid.IntRange(0, 1e9).Draw(t, "current"), Oldest: rapid.IntRange(0, 1e9).Draw(t, "oldest"),
			Created: at.Draw(t, "created"), Updated: at.Draw(t, "updated"),
			MaxVersions: rapid.IntRange(0, 1e6).Draw(t, "most"), CASRequired: rapid.Bool().Draw(t, "cas"),
			DeleteAfter: time.Duration(rapid.Int64().Draw(t, "after"))}
		h.Meta, h.MetaCASRequired = rapid.IntRange(0, 1e6).Draw(t, "meta"), rapid.Bool().Draw(t, "meta cas")
		if rapid.Bool().Draw(t, "has custom") {
			h.Custom = rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "custom")
		}
		var got head
		if err := got.unpack(putHead("a", &h).Value); err != nil {
			t.Fatal(err)
		}
		same := maps.Equal(got.Custom, h.Custom) && (got.Custom == nil) == (h.Custom == nil)
		got.Custom, h.Custom = nil, nil
		if a, b := text(got), text(h); !same || a != b {
			t.Fatalf("%s came back as %s, custom %v", b, a, same)
		}
		v := row{Created: at.Draw(t, "created"), Deleted: at.Draw(t, "deleted"), Destroyed: rapid.Bool().Draw(t, "destroyed"),
			Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")}
		var back row
		if err := back.unpack(putRow("a", 1, &v).Value); err != nil || !back.Created.Equal(v.Created) ||
			!back.Deleted.Equal(v.Deleted) || back.Destroyed != v.Destroyed || !bytes.Equal(back.Data, v.Data) {
			t.Fatalf("%+v came back as %+v, %v", v, back, err)
		}
	})
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// What an earlier version stored as JSON is read, and written on.
func TestEarlierRecords(t *testing.T) {
	d := newDesk(t, V2{})
	ops := []storage.Op{
		storage.Put("meta/a", []byte(`{"current_version":1,"oldest_version":1,`+
			`"created_time":"2026-01-02T03:04:05.0000006Z","updated_time":"2026-01-02T03:04:05.0000006Z","custom_metadata":{`+
			`"team":"x"}}`)),
		storage.Put(rowKey("a", 1), []byte(`{"created_time":"2026-01-02T03:04:05.0000006Z","data":{"x":1}}`)),
	}
	if err := d.store.Commit(t.Context(), 0, ops); err != nil {
		t.Fatal(err)
	}
	d.want(secrets.Read, "data/a", "", `{"data":{"x":1},"metadata":`+version(1, `{"team":"x"}`, "", false)+`}`)
	d.want(secrets.Update, "data/a", `{"data":{"x":2}}`, version(2, `{"team":"x"}`, "", false))
	d.want(secrets.Delete, "data/a", "", "")
	d.want(secrets.Read, "data/a?version=1", "", `{"data":{"x":1},"metadata":`+version(1, `{"team":"x"}`, "", false)+`}`)
	if err := d.store.Commit(t.Context(), 0, []storage.Op{storage.Put("meta/a", []byte{9})}); err != nil {
		t.Fatal(err)
	}
	d.want(secrets.Read, "data/a", "", "the record meta/a is not what was stored")
}

// FuzzBody: the quick way through a body finds what encoding/json finds.
func FuzzBody(f *testing.F) {
	for _, body := range []string{"", "null", "{}", " [1] ", `{"data":{"a":"}\\"{"},"options":{"cas":1}}`,
		`{ "options" : null , "x":[1,{"data":2}], "data" : 1.5 }`, `{"Data":{"a":1}}`,
		`{"d\u0061ta":{}}`, `{"data":1,"data":{"b":[]}}`, `{"data":{}}x`, `{"data":"x","y":true}`, "{\"data\"\n:\t{}\r}"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data, options, err := bodyOf(body)
		wantData, wantOptions, wantErr := slowBody(body)
		if (err != nil) != (wantErr != nil) || err == nil && (!bytes.Equal(data, wantData) ||
			!bytes.Equal(options, wantOptions)) {
			t.Errorf("%q: %q %q %v, want %q %q %v", body, data, options, err, wantData, wantOptions, wantErr)
		}
	})
}

func FuzzRecords(f *testing.F) {
	f.Add(putHead("a", &head{Current: 3, Custom: map[string]string{"a": "b"}}).Value)
	f.Add(putRow("a", 1, &row{Created: time.Unix(1, 2), Data: []byte(`{}`)}).Value)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var h head
		var v row
		_, _ = h.unpack(raw), v.unpack(raw) // never panics; what is stored is authenticated
	})
}
