// Package ui is the web UI: a page of static files, built from src by tools/uibuild and embedded. What it shows comes
// from api/uiapi.
//
// The page runs under a policy that lets it load nothing from elsewhere, run no inline script and build no markup from
// text (Trusted Types). Files whose names carry a hash are kept by browsers for ever; the page itself is asked for anew
// each time.
package ui

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:generate go run -C ../tools ./uibuild ../ui

//go:embed dist
var dist embed.FS

// Prefix is where the page is.
const Prefix = "/ui"

// Serves reports whether a path is the page's.
func Serves(path string) bool { return path == Prefix || strings.HasPrefix(path, Prefix+"/") }

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Handler serves the page at every path below Prefix: the page's own router knows the rest. It is safe for concurrent
// use and holds no state.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method "+r.Method+" not allowed", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	name, asset := strings.CutPrefix(r.URL.Path, Prefix+"/assets/")
	if !asset {
		h.Set("Cache-Control", "no-cache")
		send(w, r, "index.html")
		return
	}
	if name != path.Base(name) || strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".br") {
		http.NotFound(w, r)
		return
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	send(w, r, name)
}

// send writes a file in the smallest form that the browser takes.
func send(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	accepts := r.Header.Get("Accept-Encoding")
	form := name
	for _, e := range [...]struct{ coding, ending string }{{"br", ".br"}, {"gzip", ".gz"}} {
		if strings.Contains(accepts, e.coding) {
			h.Set("Content-Encoding", e.coding)
			form += e.ending
			break
		}
	}
	file, err := dist.Open("dist/" + form)
	if err != nil {
		h.Del("Content-Encoding")
		h.Set("Cache-Control", "no-store")
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	http.ServeContent(w, r, "", time.Time{}, file.(interface {
		fs.File
		Seek(offset int64, whence int) (int64, error)
	}))
}
