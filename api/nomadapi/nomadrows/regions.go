package nomadrows

import (
	"net/http"
	"strings"
)

// Regions are the other regions, as this process knows them.
type Regions interface {
	// Names lists them; Servers are their servers.
	Names() []string
	Servers() []Server
	// Forward has a server of a region answer a request. lasting says that the answer goes on for as long as the client
	// wants. The error comes before anything was written; that of a region that nobody knows reads NoPath.
	Forward(w http.ResponseWriter, r *http.Request, to Elsewhere, lasting bool) error
}

// NoPath is what stock says where a region is not known.
const NoPath = "No path to region"

// Elsewhere is the error of a handler that finds a request to be for another region.
type Elsewhere struct {
	Region string
	Body   []byte // of the request, as far as it was read
}

// Error implements error.
func (e *Elsewhere) Error() string { return NoPath }

// Crossed marks a request that came from another region: it goes to no further one.
const Crossed = "X-Corbel-Region-Crossed"

// here reports whether a row is about the process that is asked, whatever region a request names.
func (r *Row) here() bool {
	if !r.Own {
		return false
	}
	switch r.Path {
	case "/v1/regions", "/v1/metrics", "/v1/jobs/parse":
		return true
	}
	return strings.HasPrefix(r.Path, "/v1/agent/") && r.Path != "/v1/agent/monitor"
}

// cross has another region answer.
func (q *Request) cross(row *Row, to *Elsewhere) {
	if err := q.crossing(row, to); err != nil {
		q.fail(err)
	}
}

func (q *Request) crossing(row *Row, to *Elsewhere) error {
	regions := q.Cluster.Regions()
	if regions == nil || q.R.Header.Get(Crossed) != "" {
		return Failed(NoPath)
	}
	if q.R.Header.Get("Upgrade") != "" || row.Stream && q.R.Method != http.MethodGet {
		return Failed("sessions and archives are not passed on to another region: send the request to a server of "+
			"region %q", to.Region)
	}
	if to.Body == nil {
		body, err := q.Body()
		if err != nil {
			return err
		}
		to.Body = body
	}
	return regions.Forward(q.W, q.R, *to, row.Stream || row.Path == "/v1/agent/monitor")
}
