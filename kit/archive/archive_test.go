package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func made(t testing.TB, state string) []byte {
	var b bytes.Buffer
	meta := &Meta{Version: 1, ID: "2-7-1", Index: 7, Term: 2, Size: int64(len(state)),
		Configuration: Configuration{[]Server{{ID: "a", Address: "10.0.0.1:8300"}}}}
	if err := Write(&b, meta, bytes.NewReader([]byte(state+"more")), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	var state bytes.Buffer
	meta, err := Read(bytes.NewReader(made(t, "the state")), &state, 100)
	if err != nil || state.String() != "the state" || meta.Index != 7 || meta.Term != 2 ||
		meta.Configuration.Servers[0].ID != "a" {
		t.Fatalf("%+v %q %v", meta, state.String(), err)
	}
}

// Every single byte that flips is noticed.
func TestFlips(t *testing.T) {
	whole := made(t, "the state")
	for i := range whole {
		raw := bytes.Clone(whole)
		raw[i] ^= 0x10
		var state bytes.Buffer
		if _, err := Read(bytes.NewReader(raw), &state, 100); err == nil && state.String() != "the state" {
			t.Errorf("byte %d: another state was taken", i)
		}
	}
	for n := range whole {
		if _, err := Read(bytes.NewReader(whole[:n]), &bytes.Buffer{}, 100); err == nil {
			t.Errorf("an archive cut after %d of %d bytes was taken", n, len(whole))
		}
	}
}

func TestRefused(t *testing.T) {
	type file struct{ name, body string }
	sums := func(files ...file) file {
		text := ""
		for _, f := range files {
			text += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(f.body)), f.name)
		}
		return file{sumsName, text}
	}
	meta, state := file{metaName, "{}"}, file{stateName, "s"}
	for name, c := range map[string]struct {
		files []file
		kind  errkind.Kind
	}{
		"no sums":            {[]file{meta, state}, errkind.Corrupt},
		"no state":           {[]file{meta, sums(meta)}, errkind.Corrupt},
		"no meta":            {[]file{state, sums(state)}, errkind.Corrupt},
		"twice":              {[]file{meta, state, state, sums(meta, state)}, errkind.Corrupt},
		"a path":             {[]file{meta, state, {"../x", "x"}, sums(meta, state)}, errkind.Corrupt},
		"another sum":        {[]file{meta, state, sums(meta, file{stateName, "t"})}, errkind.Corrupt},
		"one sum too many":   {[]file{meta, state, sums(meta, state, file{"x", ""})}, errkind.Corrupt},
		"meta is no JSON":    {[]file{{metaName, "{"}, state, sums(file{metaName, "{"}, state)}, errkind.Corrupt},
		"a state too large":  {[]file{meta, {stateName, string(make([]byte, 200))}, sums(meta, state)}, errkind.TooLarge},
		"sums without names": {[]file{meta, state, {sumsName, "abc\n"}}, errkind.Corrupt},
	} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, f := range c.files {
			_ = w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.body)), Mode: 0o600})
			_, _ = w.Write([]byte(f.body))
		}
		_, _ = w.Close(), z.Close()
		if _, err := Read(&b, &bytes.Buffer{}, 100); errkind.Of(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(made(f, "the state"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var state bytes.Buffer
		if _, err := Read(bytes.NewReader(raw), &state, 1<<20); err == nil && state.Len() > 1<<20 {
			t.Fatal("more than the limit")
		}
	})
}

// TestTrailingBomb: what follows the files is not unpacked for ever.
func TestTrailingBomb(t *testing.T) {
	in, err := gzip.NewReader(bytes.NewReader(made(t, "the state")))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, in); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 8 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&b, io.Discard, 100); !errkind.Is(err, errkind.Corrupt) {
		t.Errorf("%v", err)
	}
}
