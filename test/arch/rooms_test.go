package arch

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the measures of rooms.txt to what is, and take out what is done")

const roomsFile = "rooms.txt"

// TestRooms holds packages, structs, types, lines and contexts to their limits.
func TestRooms(t *testing.T) {
	found := measures(packages(t))
	may, err := readRooms(roomsFile)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for r, e := range may {
			n := found[r]
			if n == 0 {
				delete(may, r)
			} else if n < e.most {
				may[r] = exemption{n, e.until}
			}
		}
		if err := writeRooms(roomsFile, may); err != nil {
			t.Fatal(err)
		}
	}
	for _, complaint := range judgeRooms(found, may) {
		t.Error(complaint)
	}
}

// TestRoomsAreJudged makes sure that the limits refuse what they must.
func TestRoomsAreJudged(t *testing.T) {
	hall := room{kindLines, "hall"}
	for name, test := range map[string]struct {
		found map[room]int
		may   map[room]exemption
		want  int
	}{
		"nothing":         {nil, nil, 0},
		"beyond":          {map[room]int{hall: 3001}, nil, 1},
		"exempt":          {map[room]int{hall: 3500}, map[room]exemption{hall: {3600, "2027-01-01"}}, 0},
		"grown":           {map[room]int{hall: 3601}, map[room]exemption{hall: {3600, "2027-01-01"}}, 1},
		"done":            {nil, map[room]exemption{hall: {3600, "2027-01-01"}}, 1},
		"another's grant": {map[room]int{hall: 3001}, map[room]exemption{{kindFields, "hall"}: {3600, "2027-01-01"}}, 2},
	} {
		if got := judgeRooms(test.found, test.may); len(got) != test.want {
			t.Errorf("%s: %q, want %d complaints", name, got, test.want)
		}
	}
	source := t.TempDir()
	files := map[string]string{
		"go.mod": "module " + modulePath + "\n\ngo 1.26\n",
		"a/a.go": "// Package a is for this test alone: it is " + strings.Repeat("wide ", 30) +
			"\npackage a\n\nimport \"context\"\n\ntype wide struct {\n\ta, b, c, d, e, f, g, h int\n\ti, j, k, l, m, n, o, p " +
			"int\n}\n\n" +
			"type Config struct{ wide; a, b, c, d, e, f, g, h, i, j, k, l, m, n, o int }\n\nfunc with(ctx context.Context) " +
			"context.Context { return context.WithValue(ctx, wide{}, 1) }\n",
	}
	for name, text := range files {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := load(source)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := range measures(list) {
		got = append(got, r.String())
	}
	slices.Sort(got)
	if want := []string{"columns a", "fields a.wide", "values a"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
