package lab

import (
	"net/http"
	"time"
)

// connections are kept as a load needs them.
var connections = &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}

// header adds one to requests; its value may change until the first one.
type header struct {
	name  string
	value *string
}

// RoundTrip implements http.RoundTripper.
func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, *h.value)
	return connections.RoundTrip(r)
}
