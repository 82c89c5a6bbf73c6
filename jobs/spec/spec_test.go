package spec

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

var update = flag.Bool("update", false, "write what Parse gives into testdata")

// options of a test: chance and time are fixed.
func options() Options {
	return Options{Filename: "x.hcl", Now: time.Unix(1_700_000_000, 0),
		Random: strings.NewReader(strings.Repeat("r", 1<<10)),
		ReadFile: func(path string) ([]byte, error) {
			if path == "motd.txt" {
				return []byte("hello"), nil
			}
			return nil, errors.New("no such file: " + path)
		}}
}

// TestStories parses what testdata has: job.hcl, with vars.hcl, into job.json or errors.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := options()
			var text, want []byte
			result := -1
			for i, f := range archive.Files {
				switch f.Name {
				case "job.hcl":
					text = f.Data
				case "vars.hcl":
					o.VarFiles = append(o.VarFiles, File{f.Name, f.Data})
				case "result":
					want, result = f.Data, i
				}
			}
			got := story(text, o)
			if got == string(want) {
				return
			}
			if !*update || result < 0 {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			archive.Files[result].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// story is what Parse says: the fields of the job that are set, or the problems.
func story(text []byte, o Options) string {
	j, err := Parse(text, o)
	if err != nil {
		return err.Error() + "\n"
	}
	data, err := json.Marshal(j)
	if err != nil {
		return err.Error()
	}
	var all any
	if err := json.Unmarshal(data, &all); err != nil {
		return err.Error()
	}
	out, _ := json.MarshalIndent(sparse(all), "", "  ")
	return string(out) + "\n"
}

// sparse takes out what says nothing, so that a story is readable.
func sparse(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = sparse(e); e == nil || e == "" || e == false || e == 0.0 {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
	case []any:
		for i := range v {
			v[i] = sparse(v[i])
		}
	}
	return v
}

// metaOf evaluates e as the job's meta x.
func metaOf(t *testing.T, e string) (string, error) {
	t.Helper()
	j, err := Parse([]byte("job \"j\" {\n meta {\n x = "+e+"\n }\n}\n"), options())
	if err != nil {
		return "", err
	}
	return j.Meta["x"], nil
}

func TestFunctions(t *testing.T) {
	for e, want := range map[string]string{
		`upper("a")`: "A", `length("héllo")`: "5", `length([1, 2])`: "2", `length({a = 1})`: "1",
		`index(["a", "b"], "b")`: "1",
		`sum([1, 2.5])`:          "3.5", `alltrue([true, false])`: "false", `alltrue([])`: "true", `anytrue([false, true])`: "true",
		`join("-", ["a", "b"])`: "a-b", `join(",", [for i in range(3) : "n${i}"])`: "n0,n1,n2",
		`format("%03d-%s", 7, "x")`: "007-x", `jsonencode({b = [1], a = null})`: `{"a":null,"b":[1]}`,
		`replace("a-b", "-", "+")`: "a+b", `regex_replace("abc", "b+", "x")`: "axc", `regex("[0-9]+", "a12")`: "12",
		`try(local.none, "t")`: "", `can(tonumber("x"))`: "false", `file("motd.txt")`: "hello",
		`md5("")`:  "d41d8cd98f00b204e9800998ecf8427e",
		`sha1("")`: "da39a3ee5e6b4b0d3255bfef95601890afd80709", `substr("hello", 1, 3)`: "ell",
		`sha256("")`:               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		`substr(sha512(""), 0, 8)`: "cf83e135", `uuidv5("dns", "example.org")`: "aad03681-8b63-5304-89e0-8ca8f49461b5",
		`base64encode("hi")`: "aGk=", `base64decode("aGk=")`: "hi", `urlencode("a b")`: "a+b", `basename("/a/b")`: "b",
		`dirname("/a/b")`: "/a", `startswith("ab", "a")`: "true", `endswith("ab", "a")`: "false",
		`strcontains("abc", "b")`: "true", `timestamp()`: "2023-11-14T22:13:20Z", `length(uuidv4())`: "36",
		`cidrhost("10.1.0.0/16", 258)`: "10.1.1.2", `cidrhost("10.1.0.0/16", -2)`: "10.1.255.254",
		`cidrnetmask("172.16.0.0/12")`: "255.240.0.0", `cidrsubnet("10.0.0.0/8", 8, 2)`: "10.2.0.0/16",
		`cidrsubnet("fd00::/8", 8, 255)`: "fdff::/16", `cidrhost("fd00::/64", 5)`: "fd00::5",
		`"${attr.kernel.name}"`: "${attr.kernel.name}", `"a${meta.rack}b${1 + 1}"`: "a${meta.rack}b2",
		`"${NOMAD_PORT_http}"`: "${NOMAD_PORT_http}", `"${env["HOME"]}"`: `${env["HOME"]}`, `"$${x}"`: "${x}",
		`"%{ if true }y%{ else }n%{ endif }"`: "y", `tostring(1 + 2 * 3)`: "7", `true ? "a" : "b"`: "a",
		`keys({(upper("a")) = 1})[0]`: "A", `lookup({a = "1"}, "b", "2")`: "2", `convert(3, string)`: "3",
		`join(",", [{a = "1"}, {a = "2"}][*].a)`: "1,2", `jsonencode(merge({a = 1}, {b = 2}))`: `{"a":1,"b":2}`,
	} {
		got, err := metaOf(t, e)
		if strings.Contains(e, "local.none") {
			if err == nil {
				t.Errorf("%s = %q: a missing local is an error also in try", e, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", e, got, err, want)
		}
	}
}

// TestBounds: B13. What doubles, loops and nests ends at once, with an error that says so.
func TestBounds(t *testing.T) {
	doubled := "locals {\n a0 = \"" + strings.Repeat("x", 1000) + "\"\n"
	nested := "locals {\n b0 = [1, 2]\n"
	for i := range 40 {
		n, m := string(rune('0'+i/10))+string(rune('0'+i%10)), string(rune('0'+(i+1)/10))+string(rune('0'+(i+1)%10))
		if i == 0 {
			n = "0"
		}
		doubled += " a" + m + " = \"${local.a" + n + "}${local.a" + n + "}\"\n"
		nested += " b" + m + " = [local.b" + n + ", local.b" + n + "]\n"
	}
	job := "}\njob \"j\" {}\n"
	meta := func(e string) string { return "job \"j\" {\n meta {\n x = " + e + "\n }\n}\n" }
	loops := "range(1000)"
	for range 4 {
		loops = "[for i in range(1000) : " + loops + "]"
	}
	dynamic := "group \"g\" {}"
	for range 6 {
		dynamic = "dynamic \"group\" {\n for_each = range(1000)\n labels = [\"x\"]\n content {\n" +
			strings.ReplaceAll(dynamic, "group", "task") + "\n}\n}\n"
	}
	for name, text := range map[string]string{
		"doubled text": doubled + job, "doubled lists": nested + job, "nested loops": meta("length(" + loops + ")"),
		"brackets": meta(strings.Repeat("(", 100_000)), "signs": meta(strings.Repeat("!", 100_000) + "true"),
		"negated": meta(strings.Repeat("-", 100_000) + "1"), "chain": meta("1" + strings.Repeat("+1", 100_000)),
		"conditionals": meta(strings.Repeat("true?1:", 100_000) + "1"), "blocks": strings.Repeat("job \"a\" {\n", 100_000),
		"indexes": meta("a" + strings.Repeat("[b]", 100_000)), "number": meta(`"${1e999999999}"`),
		"power": meta(`pow(10, 300) * pow(10, 300) * pow(10, 300) * pow(10, 300) * pow(10, 300)`),
		"width": meta(`format("%999999999d", 1)`), "indent": meta(`indent(1000000000, "a\nb")`),
		"join":    meta(`join(format("%1000s", "x"), [for i in range(1000) : join(format("%1000s", "x"), range(1000))])`),
		"replace": meta(`replace(format("%1000s", ""), "", replace(format("%1000s", ""), " ", format("%1000s", "")))`),
		"product": meta(`length(setproduct(range(1000), range(1000), range(1000)))`),
		"pattern": meta(`regex("(x{1000}){1000}", "x")`), "dynamic": "job \"j\" {\n" + dynamic + "\n}",
		"try": meta(`try(` + loops + `, "caught")`), "templates": meta("\"" + strings.Repeat("%{ if true }", 50_000) + "\""),
		"interpolations": meta(strings.Repeat("\"${", 50_000)), "bytes": meta("\"" + strings.Repeat("x", 2<<20) + "\""),
		"heredocs": meta(strings.Repeat("<<A\n${\n", 10_000)), "objects": meta(strings.Repeat("{a=", 50_000)),
		"distinct": meta(`length(distinct(flatten([for i in range(1000) : range(100)])))`),
		"groups": "job \"j\" {\n dynamic \"group\" {\n for_each = flatten([for i in range(1000) : range(1000)])\n" +
			" labels = [group.value]\n content {}\n }\n}\n",
	} {
		began := time.Now()
		o := options()
		o.MaxSteps = DefaultMaxSteps / 10
		_, err := Parse([]byte(text), o)
		if took := time.Since(began); took > 10*time.Second { // a hang, on a machine however busy
			t.Errorf("%s: %v", name, took)
		}
		if err == nil || errkind.Of(err) != errkind.Invalid || len(err.Error()) > 8<<10 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// TestVariables: the order of the sources.
func TestVariables(t *testing.T) {
	text := []byte("variable \"a\" {\n default = \"d\"\n}\nvariable \"n\" {\n type = list(number)\n default = [1]\n}\n" +
		"job \"j\" {\n meta {\n x = \"${var.a}-${join(\",\", var.n)}\"\n }\n}\n")
	o := options()
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "d-1"},
		{func() { o.Env = map[string]string{"a": "e", "n": "[2]", "other": "1"} }, "e-2"},
		{func() { o.VarFiles = []File{{"v", []byte("a = \"f\"\nn = [3, 4]\n")}} }, "f-3,4"},
		{func() { o.Variables = []Assignment{{"a", "x\"y"}} }, "x\"y-3,4"},
		{func() { o.Variables = append(o.Variables, Assignment{"a", "z"}, Assignment{"n", "[5]"}) }, "z-5"},
	} {
		step.change()
		j, err := Parse(text, o)
		if err != nil || j.Meta["x"] != step.want {
			t.Errorf("%+v, %v; want %s", j, err, step.want)
		}
	}
	o.Variables = []Assignment{{"aa", "1"}}
	if _, err := Parse(text, o); err == nil || !strings.Contains(err.Error(), `did you mean "a"?`) {
		t.Errorf("an unknown variable: %v", err)
	}
	o.Lax = true
	if _, err := Parse(text, o); err != nil {
		t.Error(err)
	}
}

// FuzzParse: no panic, no hang, and a job that is given can be encoded, canonicalized and read again.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			f.Add(string(part.Data), "")
		}
	}
	f.Add("variable \"a\" {\n type = list(string)\n}\njob \"j\" {}", `["x"]`)
	f.Fuzz(func(t *testing.T, text, value string) {
		o := options()
		o.MaxSteps, o.MaxBytes = 20_000, 64<<10
		o.Env = map[string]string{"a": value}
		j, err := Parse([]byte(text), o)
		if err != nil {
			if errkind.Of(err) != errkind.Invalid {
				t.Fatalf("%v is not Invalid", err)
			}
			return
		}
		j.Canonicalize()
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobwire.Decode[jobwire.Job](data); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	})
}
