package forward

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// TestCutAnswersStayCut: an answer that its server cuts, a snapshot whose reader lost the right for instance, does not
// end in order on its way over RPC.
func TestCutAnswersStayCut(t *testing.T) {
	addr := farServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("part", 1<<16))
		panic(http.ErrAbortHandler)
	}))
	req, err := Encode(httptest.NewRequest(http.MethodGet, "/v1/snapshot", nil), rows.Journey{Hops: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := datacenters(t).Paths.Client.Stream(t.Context(), addr, MethodStream, pack.Bytes(pack.String(nil, ""), req))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) || !errkind.Is(err, errkind.Unknown) {
		t.Errorf("it ended with %v", err)
	}
}
