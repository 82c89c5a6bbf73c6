package diff

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/reconcile"
	"corbel.dev/corbel/jobs/spec"
)

var update = flag.Bool("update", false, "write what Jobs gives into testdata")

func parse(t testing.TB, text []byte) *jobwire.Job {
	t.Helper()
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil
	}
	j, err := spec.Parse(text, spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j.Canonicalize()
	j.Admit()
	return j
}

// TestStories compares before.hcl with after.hcl and writes the difference as the command line would.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		part := map[string]int{}
		for i, f := range archive.Files {
			part[f.Name] = i
		}
		from := parse(t, archive.Files[part["before.hcl"]].Data)
		to := parse(t, archive.Files[part["after.hcl"]].Data)
		d, err := Jobs(from, to, strings.Contains(file, "context"))
		if err != nil {
			t.Fatal(err)
		}
		Annotate(d, from, to, map[string]*DesiredUpdates{"api": Updates(reconcile.Counts{Ignore: 1, Place: 2}, 0)})
		got := written(d)
		if want := string(archive.Files[part["result"]].Data); got != want {
			if !*update {
				t.Fatalf("%s: got\n%s\nwant\n%s", file, got, want)
			}
			archive.Files[part["result"]].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var marks = map[string]string{Added: "+ ", Deleted: "- ", Edited: "+/- ", None: ""}

func written(d *Job) string {
	var b strings.Builder
	line := func(depth int, kind, text string, notes []string) {
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		fmt.Fprintf(&b, "%s%s%s\n", strings.Repeat("  ", depth), marks[kind], text)
	}
	var objects func(depth int, list []*Object)
	fields := func(depth int, list []*Field) {
		for _, f := range list {
			text := fmt.Sprintf("%s: %q => %q", f.Name, f.Old, f.New)
			if f.Type != Edited {
				text = fmt.Sprintf("%s: %q", f.Name, f.Old+f.New)
			}
			if f.Type == None {
				text = fmt.Sprintf("%s: %q", f.Name, f.New)
			}
			line(depth, f.Type, text, f.Annotations)
		}
	}
	objects = func(depth int, list []*Object) {
		for _, o := range list {
			line(depth, o.Type, o.Name, nil)
			fields(depth+1, o.Fields)
			objects(depth+1, o.Objects)
		}
	}
	line(0, d.Type, "job "+d.ID, nil)
	fields(1, d.Fields)
	objects(1, d.Objects)
	for _, g := range d.TaskGroups {
		var notes []string
		for _, name := range slices.Sorted(maps.Keys(g.Updates)) {
			notes = append(notes, fmt.Sprint(g.Updates[name], " ", name))
		}
		line(1, g.Type, "group "+g.Name, notes)
		fields(2, g.Fields)
		objects(2, g.Objects)
		for _, task := range g.Tasks {
			line(2, task.Type, "task "+task.Name, task.Annotations)
			fields(3, task.Fields)
			objects(3, task.Objects)
		}
	}
	return b.String()
}

func TestEnds(t *testing.T) {
	a := parse(t, []byte(`job "a" {}`))
	b := parse(t, []byte(`job "b" {}`))
	if _, err := Jobs(a, b, false); err == nil {
		t.Error("jobs with different ids are not compared")
	}
	if d, err := Jobs(nil, nil, false); err != nil || d.Type != None {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := Jobs(a, a, true); err != nil || d.Type != None || len(d.Objects) > 0 {
		t.Errorf("%+v, %v", d, err)
	}
	version := *a
	seven := uint64(7)
	version.Version, version.JobModifyIndex = &seven, &seven
	if d, err := Jobs(a, &version, true); err != nil || d.Type != None {
		t.Errorf("what the servers write is no change: %+v, %v", d, err)
	}
	added, _ := Jobs(nil, a, false)
	deleted, _ := Jobs(a, nil, false)
	if added.Type != Added || deleted.Type != Deleted || added.ID != "a" || deleted.ID != "a" {
		t.Errorf("%+v %+v", added, deleted)
	}
}

// TestJSON: the keys of the API, and lists that are null when there is nothing.
func TestJSON(t *testing.T) {
	d, _ := Jobs(parse(t, []byte("job \"a\" {\n priority = 1\n}")),
		parse(t, []byte("job \"a\" {\n priority = 2\n}")), false)
	data, err := json.Marshal(d)
	want := `{"Type":"Edited","ID":"a","Fields":[{"Type":"Edited","Name":"Priority","Old":"1","New":"2",` +
		`"Annotations":null}],"Objects":null,"TaskGroups":null}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
}

// FuzzJobs: no panic; a job does not differ from itself; what is added one way is deleted the other way.
func FuzzJobs(f *testing.F) {
	f.Add([]byte(`{"ID":"a","TaskGroups":[{"Name":"g","Tasks":[{"Name":"t","Config":{"a":[1,{"b":null}]}}]}]}`),
		[]byte(`{"ID":"a","Meta":{"x":"y"},"TaskGroups":[{"Name":"g"},{"Name":"g","Services":[{"Name":"s"}]}]}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := jobwire.Decode[jobwire.Job](x)
		if err != nil {
			return
		}
		b, err := jobwire.Decode[jobwire.Job](y)
		if err != nil {
			return
		}
		a.Canonicalize()
		b.Canonicalize()
		b.ID = a.ID
		same, err := Jobs(a, a, true)
		if err != nil || same.Type != None {
			t.Fatalf("%s differs from itself: %s", x, written(same))
		}
		there, _ := Jobs(a, b, false)
		back, _ := Jobs(b, a, false)
		opposite := strings.NewReplacer(Added, Deleted, Deleted, Added)
		if len(there.Fields) != len(back.Fields) || len(there.TaskGroups) != len(back.TaskGroups) ||
			there.Type != opposite.Replace(back.Type) {
			t.Fatalf("%s\n%s", written(there), written(back))
		}
		Annotate(there, a, b, nil)
	})
}

// TestAnnotateAsTheScheduler: a change is called destructive exactly when the scheduler replaces for it.
func TestAnnotateAsTheScheduler(t *testing.T) {
	job := func(inside string) *jobwire.Job {
		return parse(t, []byte("job \"j\" {\n group \"g\" {\n task \"t\" {\n driver = \"d\"\n"+inside+"\n}\n}\n}\n"))
	}
	for inside, destructive := range map[string]bool{"user = \"u\"": true, "env = {\n A = 1\n}": true,
		"resources {\n cpu = 7\n}": true, "config {\n a = 1\n}": true, "kill_timeout = \"9s\"": false,
		"template {\n data = \"x\"\n destination = \"y\"\n}": true, "service {\n name = \"s\"\n}": false,
		"vault {}": true, "artifact {\n source = \"x\"\n}": true, "restart {\n attempts = 9\n}": false} {
		from, to := job(""), job(inside)
		d, err := Jobs(from, to, false)
		if err != nil {
			t.Fatal(err)
		}
		Annotate(d, from, to, nil)
		want := forcesInPlace
		if destructive {
			want = forcesDestructive
		}
		if got := d.TaskGroups[0].Tasks[0].Annotations; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", inside, got, want)
		}
		if reconcile.Destructive(jobwire.ToJob(from), jobwire.ToJob(to), "g") != destructive {
			t.Errorf("%s: the scheduler thinks otherwise", inside)
		}
	}
}
