package httpx

import (
	"net/http"

	"corbel.dev/corbel/kit/errkind"
)

// ServeWhole has h answer where no connection shows that an answer was cut: then it returns an error.
func ServeWhole(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = errkind.New(errkind.Unknown, "the answer was cut before its end")
		} else if p != nil {
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}
