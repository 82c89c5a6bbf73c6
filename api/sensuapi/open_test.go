package sensuapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoGraphQL: clients of GraphQL read why from its errors, others from the contract's message.
func TestNoGraphQL(t *testing.T) {
	open := Open(OpenConfig{Cluster: func() Cluster { return Cluster{} }, Lacks: func() []string { return nil },
		Metrics: http.NotFoundHandler()})
	w := httptest.NewRecorder()
	open.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/graphql",
		strings.NewReader(`{"query":"{ viewer { namespaces { name } } }"}`)))
	var answer struct {
		Message string
		Errors  []struct{ Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusNotImplemented ||
		len(answer.Errors) != 1 || answer.Errors[0].Message != answer.Message ||
		!strings.Contains(answer.Message, "/api/core/v2") {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
}
