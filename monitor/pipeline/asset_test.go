package pipeline

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/monitor"
)

func archive(t *testing.T, files map[string]string) (b []byte, sum string) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, body := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body)),
			Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	digest := sha512.Sum512(out.Bytes())
	return out.Bytes(), hex.EncodeToString(digest[:])
}

// Commands find what assets hold on their path, and expressions the functions of assets' scripts. An asset is named
// by how its name begins, and the build for the server is taken.
func TestAssets(t *testing.T) {
	tool, toolSum := archive(t, map[string]string{"bin/shout": "#!/bin/sh\ntr a-z A-Z\n"})
	lib, libSum := archive(t, map[string]string{"lib/team.js": "function team(e) { return e.entity.labels.region === " +
		"'us' ? 'west' : 'east' }"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/tool":
			_, _ = w.Write(tool)
		case "/lib":
			_, _ = w.Write(lib)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	west, east := allow("west", "team(event) == 'west'"), allow("east", "team(event) == 'east'")
	west.RuntimeAssets, east.RuntimeAssets = []string{"team"}, []string{"team"}
	shout := pipe("shouts", `shout > "$OUT/shouts"; echo "$TOOLS_SHOUT_PATH" > "$OUT/path"`, "west")
	shout.RuntimeAssets, shout.Mutator = []string{"tools/"}, "only_check_output"
	gone := writes("gone")
	gone.RuntimeAssets = []string{"gone"}
	w := start(t, nil, west, east, shout, writes("quiet", "east"), gone,
		&monitor.Asset{Meta: meta("tools/shout"),
			Builds: []*monitor.AssetBuild{{URL: s.URL + "/none", SHA512: toolSum,
				Filters: []string{"entity.system.os == 'windows'"}}, {URL: s.URL + "/tool", SHA512: toolSum}}},
		&monitor.Asset{Meta: meta("team"), URL: s.URL + "/lib", SHA512: libSum},
		&monitor.Asset{Meta: meta("gone"), URL: s.URL + "/gone", SHA512: libSum[:127] + "x"})
	w.send(result("e", "cpu", 2, "shouts", "quiet", "gone"))
	w.settled()
	if got := w.lines("shouts"); len(got) != 1 || got[0] != "THE OUTPUT" || len(w.lines("path")[0]) < 128 ||
		w.of("shouts").Done != 1 {
		t.Errorf("%q, %q", got, w.lines("path"))
	}
	if s := w.of("quiet"); s.Filtered != 1 || s.Done != 0 {
		t.Errorf("quiet: %+v", s)
	}
	if s := w.of("gone"); s.Failed != 1 || !w.log.has("asset \\\"gone\\\"") {
		t.Errorf("gone: %+v", s)
	}
}
