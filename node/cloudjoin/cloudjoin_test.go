package cloudjoin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// TestMain is a child too: the tests start themselves.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildCommand {
		if err := Serve(os.Stdin, os.Stdout, map[string]Provider{"aws": fake{}}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fake does what its tag says.
type fake struct{}

func (fake) Addrs(args map[string]string) ([]string, error) {
	switch args["tag_value"] {
	case "hang":
		select {}
	case "die":
		os.Exit(3)
	case "flood":
		fmt.Print(strings.Repeat("x", maxAnswer+1))
	case "many":
		out := make([]string, MaxAddrs+1)
		for i := range out {
			out[i] = fmt.Sprintf("h%d", i)
		}
		return out, nil
	case "odd":
		return []string{"10.0.0.1; rm -rf /"}, nil
	case "none":
		return nil, nil
	case "refused":
		return nil, errors.New("the key " + args["secret_access_key"] + " is not known")
	}
	return []string{"10.0.0.1", "10.0.0.2:8301", "10.0.0.1", "", "[fd00::1]:8301", "fd00::2", "s1.example.com"}, nil
}

func TestParse(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"provider=aws tag_key=role tag_value=server":   {"provider": "aws", "tag_key": "role", "tag_value": "server"},
		" tag_value=\"a \\\"b\\\" = c\"\tprovider=aws": {"provider": "aws", "tag_value": `a "b" = c`},
		"provider=azure secret_access_key='x\\y='":     {"provider": "azure", "secret_access_key": `x\y=`},
		"provider=gce zone_pattern=":                   {"provider": "gce", "zone_pattern": ""},
	} {
		if e, err := Parse(text); err != nil || !reflect.DeepEqual(e.args, want) {
			t.Errorf("%s: %v, %v; want %v", text, e.args, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                                   "provider: \"\" is none of aws, azure",
		"provider=cloud":                     "provider: \"cloud\" is none of",
		"provider=aws tag_kye=x":             "tag_kye: aws does not understand it; did you mean tag_key?",
		"provider=aws provider=aws":          "provider: it is there twice",
		"provider=aws tag_key":               "key=value is expected where \"tag_key\" begins",
		"provider=aws tag_key=a=b":           "tag_key: a value with an equals sign is put into quotes",
		"provider=aws tag_key=\"a":           "tag_key: the quoted value has no end",
		"provider=aws tag_key='a":            "tag_key: the quoted value has no end",
		"provider=aws tag_key='a'b":          "tag_key: a blank is expected after the quoted value",
		"provider=aws =x":                    "key=value is expected",
		"provider=aws region=" + long(1<<20): "an entry of more than",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestIs(t *testing.T) {
	for addr, want := range map[string]bool{"provider=aws": true, "tag_key=x provider=aws": true, "10.0.0.1": false,
		"my-provider=x": false, "my-provider=x provider=aws": true, "provider.example.com": false} {
		if Is(addr) != want {
			t.Errorf("%q: %v, want %v", addr, !want, want)
		}
	}
}

func TestCredentialsAreNotShown(t *testing.T) {
	e, err := Parse(`provider=aws access_key_id=AKIA1 secret_access_key="top secret" tag_key=role tag_value="a b"`)
	if err != nil {
		t.Fatal(err)
	}
	want := `provider=aws access_key_id=<hidden> secret_access_key=<hidden> tag_key=role tag_value="a b"`
	if e.String() != want {
		t.Errorf("%s, want %s", e, want)
	}
	if got := e.Hide("AKIA1: top secret is wrong"); got != "<hidden>: <hidden> is wrong" {
		t.Error(got)
	}
	shown := Shown([]string{"10.0.0.1", "provider=os password=p", "provider=os password=p x=y"})
	if got := strings.Join(shown, ","); got != "10.0.0.1,provider=os password=<hidden>,provider=..." {
		t.Error(got)
	}
	e.args["tag_value"] = "refused"
	if _, err := asker(t).Addrs(t.Context(), e); err == nil || strings.Contains(err.Error(), "top secret") ||
		!strings.Contains(err.Error(), "<hidden> is not known") {
		t.Errorf("%v: want the cloud's words without the credential", err)
	}
}

func asker(t *testing.T) *Asker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Asker{Command: []string{self, ChildCommand}}
}

func TestResolve(t *testing.T) {
	a := asker(t)
	got, err := a.Resolve(t.Context(), []string{"10.9.9.9", "provider=aws", "last.example.com"})
	want := []string{"10.9.9.9", "10.0.0.1", "10.0.0.2:8301", "[fd00::1]:8301", "fd00::2", "s1.example.com",
		"last.example.com"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
	for tag, want := range map[string]string{"die": "exit status 3", "flood": "more than", "many": "narrow it down",
		"odd": "is no address", "none": "nobody is found"} {
		got, err := a.Resolve(t.Context(), []string{"provider=aws tag_value=" + tag, "10.9.9.9"})
		if !errkind.Is(err, errkind.Unavailable) && tag != "flood" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", tag, err, want)
		}
		if !reflect.DeepEqual(got, []string{"10.9.9.9"}) {
			t.Errorf("%s: %q: want what needs no cloud", tag, got)
		}
	}
}

// A cloud that never answers is given up, and the child with it.
func TestSilentCloud(t *testing.T) {
	e, err := Parse("provider=aws tag_value=hang")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := asker(t).Addrs(ctx, e); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("%v: want kind Unavailable", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("provider=aws tag_key=role tag_value=\"a b\" secret_access_key='x='")
	f.Add(`provider=mdns service="\u00e4"`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		for key := range e.args {
			for _, s := range secret {
				if key == s {
					return // it is not shown, so not read again
				}
			}
		}
		again, err := Parse(e.String())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%q is shown as %q, which is read as %v, %v", text, e, again, err)
		}
	})
}
