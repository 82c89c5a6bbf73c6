package jobsplane

import "net/http"

// API answers what the plane's port answers, for the web UI.
func (p *Plane) API() http.Handler { return p.api }
