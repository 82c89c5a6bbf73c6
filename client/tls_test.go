package client

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

func TestTLSFiles(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	for name, text := range map[string]string{"folder/authority": string(authority), "other/..data/x": "",
		"wrong/authority": "no PEM", "authority.pem": string(authority)} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name  string
		files TLSFiles
		wrong string // of the configuration; "no" of the connection
	}{
		{"file", TLSFiles{CAFile: in("authority.pem")}, ""},
		{"folder", TLSFiles{CAPath: in("folder")}, ""},
		{"any certificate", TLSFiles{SkipVerify: true}, ""},
		{"the system's", TLSFiles{}, "no"},
		{"folder of folders", TLSFiles{CAPath: in("other")}, "no"},
		{"another name", TLSFiles{CAFile: in("authority.pem"), ServerName: "elsewhere"}, "no"},
		{"folder with something else", TLSFiles{CAPath: in("wrong")}, "wrong/authority holds no certificate"},
		{"missing folder", TLSFiles{CAPath: in("none")}, "none"},
		{"missing file", TLSFiles{CAFile: in("none")}, "none"},
		{"half a certificate", TLSFiles{KeyFile: "x"}, "CLIENT_CERT"},
		{"no certificate", TLSFiles{KeyFile: in("none"), CertFile: in("none")}, "none"},
	} {
		cfg, err := c.files.Config()
		if c.wrong != "" && c.wrong != "no" {
			if err == nil || !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		tr := &http.Transport{TLSClientConfig: cfg}
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
		if (err == nil) != (c.wrong == "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		tr.CloseIdleConnections()
	}
}
