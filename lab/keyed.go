package lab

import "net/http"

// keyed adds the monitor's key to requests.
type keyed struct{}

// RoundTrip implements http.RoundTripper.
func (keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Key "+labKey)
	return http.DefaultTransport.RoundTrip(r)
}
