package httpx

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// TestAnswerThatIsCutOff: who asks a handler in memory reads what it answers whole, and an error where it gave up.
func TestAnswerThatIsCutOff(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half of ")
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "it")
	})
	w, err := Answer(h, httptest.NewRequest("GET", "/whole", nil))
	if err != nil || w.Status != 200 || string(w.Body) != "half of it" {
		t.Errorf("whole: %+v, %v", w, err)
	}
	if w, err := Answer(h, httptest.NewRequest("GET", "/cut", nil)); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("cut off: %+v, %v", w, err)
	}
}
