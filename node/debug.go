package node

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"corbel.dev/corbel/api/corbelapi"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/pack"
)

// reachPrefix begins the paths that another member of the pool answers:
// /v1/internal/reach/NODE/v1/agent/self. It is how `corbel debug` asks servers and
// agents whose HTTP ports it cannot reach.
const reachPrefix = "/v1/internal/reach/"

// reachable are the paths that may be asked of another member: what tells about its
// process, and changes nothing. A / at the end stands for all below.
var reachable = []string{"/v1/agent/self", "/v1/agent/host", "/v1/agent/version", "/v1/agent/metrics", "/v1/agent/metrics/stream",
	"/v1/agent/monitor", "/v1/doctor", "/v1/doctor/evidence", "/v1/doctor/profile", "/debug/pprof/"}

// withProfiles serves /debug/pprof, the doctor and reachPrefix beside api.
func (p *Process) withProfiles(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
		defer p.doctor.profiler.Yield()()
		pprof.Profile(w, r)
	})
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/debug/pprof/"):
			if !p.mayProfile(r) {
				http.Error(w, "Permission denied: profiles need enable_debug = true, or ACLs and a token with operator:read", http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		case corbelapi.Serves(r.URL.Path):
			p.doctor.api.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, reachPrefix):
			p.reach(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// mayProfile: enable_debug opens profiles to all who reach the port; otherwise ACLs must be on and the token may read operator.
func (p *Process) mayProfile(r *http.Request) bool {
	if p.current().Logging.EnableDebug {
		return true
	}
	if !p.cfg.ACL.Enabled {
		return false
	}
	grant, err := p.access.tokens.Grant(r.Context(), r.Header.Get("X-Consul-Token"))
	return err == nil && grant.Allow(acl.Operator, "", acl.Read)
}

// reach passes a request for diagnostics to the member it is for, which judges the caller's token itself.
func (p *Process) reach(w http.ResponseWriter, r *http.Request) {
	name, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, reachPrefix), "/")
	path = "/" + path
	if r.Method != http.MethodGet || !ok || !mayReach(path) || journeyOf(r.Context()).hops > 0 {
		http.Error(w, "only diagnostics can be asked of another member, with GET", http.StatusForbidden)
		return
	}
	there := r.Clone(r.Context())
	there.URL.Path, there.URL.RawPath, there.Body = path, "", http.NoBody
	if name == p.cfg.Node.Name {
		p.withProfiles(p.api).ServeHTTP(w, there)
		return
	}
	m, ok := p.pool.Member(name)
	if !ok {
		http.Error(w, "agent: No node found with name '"+name+"'", http.StatusNotFound)
		return
	}
	if m.Status != member.Alive {
		http.Error(w, "the member "+name+" does not answer: gossip says it is "+m.Status.String(), http.StatusServiceUnavailable)
		return
	}
	req, err := encodeRequest(there, journey{hops: 1})
	if err == nil {
		stream, serr := p.rpc.Stream(r.Context(), memberRPC(m), methodHTTPStream, pack.Bytes(pack.String(nil, ""), req))
		if err = serr; err == nil {
			defer stream.Close()
			err = copyStream(w, stream)
		}
	}
	if err != nil {
		http.Error(w, "the member "+name+" at "+memberRPC(m)+" does not answer: "+err.Error(), http.StatusServiceUnavailable)
	}
}

func mayReach(path string) bool {
	for _, known := range reachable {
		if path == known || strings.HasSuffix(known, "/") && strings.HasPrefix(path, known) && !strings.Contains(path, "..") {
			return true
		}
	}
	return false
}
