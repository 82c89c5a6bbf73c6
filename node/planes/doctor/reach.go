package doctorplane

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/corbelapi"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
	"corbel.dev/corbel/node/plane"
)

// ReachPrefix begins the paths that another member of the pool answers:
// /v1/internal/reach/NODE/v1/agent/self. It is how `corbel debug` asks servers and
// agents whose HTTP ports it cannot reach.
const ReachPrefix = "/v1/internal/reach/"

// planesPath tells what each plane of a member has for the debug archive.
const planesPath = "/v1/internal/planes"

// logPath has the newest lines of a member's log, from debug on, as far as its memory keeps them.
const logPath = "/v1/internal/log"

var logType = []string{"application/x-ndjson"}

// serveLog answers with the newest lines.
func (d *Doctor) serveLog(w http.ResponseWriter, r *http.Request) {
	if !d.d.Allows(r, plane.Right{Resource: acl.Operator, Level: acl.Read}) {
		http.Error(w, "Permission denied: the kept log needs operator:read", http.StatusForbidden)
		return
	}
	var b bytes.Buffer
	if err := d.d.Logs.Newest(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, http.StatusOK, logType, b.Bytes())
}

// serveProfiles answers below /debug/pprof/.
func (d *Doctor) serveProfiles() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
		defer d.examiner.Yield()()
		pprof.Profile(w, r)
	})
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// ServeHTTP serves /debug/pprof, the doctor and ReachPrefix beside planes and the API.
func (d *Doctor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/debug/pprof/"):
		if !d.mayProfile(r) {
			http.Error(w, "Permission denied: profiles need enable_debug = true, or ACLs and a token with operator:read",
				http.StatusForbidden)
			return
		}
		d.profiles.ServeHTTP(w, r)
	case corbelapi.Serves(r.URL.Path):
		d.reports.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, ReachPrefix):
		d.reach(w, r)
	case r.URL.Path == planesPath:
		d.d.ServeDebug(w, r)
	case r.URL.Path == logPath:
		d.serveLog(w, r)
	default:
		if mounted := d.d.Handler(r); mounted != nil {
			mounted.ServeHTTP(w, r)
			return
		}
		d.api.ServeHTTP(w, r)
	}
}

// mayProfile: enable_debug opens profiles to all who reach the port; otherwise ACLs must be on and the token may read
// operator.
func (d *Doctor) mayProfile(r *http.Request) bool {
	return d.d.Current().Logging.EnableDebug ||
		d.d.Cfg.ACL.Enabled && d.d.Allows(r, plane.Right{Resource: acl.Operator, Level: acl.Read})
}

// reach asks a member for diagnostics on behalf of a caller.
func (d *Doctor) reach(w http.ResponseWriter, r *http.Request) {
	name, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, ReachPrefix), "/")
	path = "/" + path
	res, known := diagnostic(path)
	if r.Method != http.MethodGet || !ok || !known || rows.JourneyOf(r.Context()).Hops > 1 {
		http.Error(w, "only diagnostics can be asked of another member, with GET", http.StatusForbidden)
		return
	}
	there := r.Clone(r.Context())
	there.URL.Path, there.URL.RawPath, there.Body = path, "", http.NoBody
	if name == d.d.Cfg.Node.Name {
		d.ServeHTTP(w, there)
		return
	}
	m, ok := d.d.Pool.Member(member.ActAskMember, name)
	if !ok {
		http.Error(w, "agent: No node found with name '"+name+"'", http.StatusNotFound)
		return
	}
	if m.Status != member.Alive {
		http.Error(w, "the member "+name+" does not answer: gossip says it is "+m.Status.String(),
			http.StatusServiceUnavailable)
		return
	}
	if d.d.Cfg.Server && m.Tags["role"] != base.RoleServer { // the agent cannot judge: it does not know who asks
		held, release := standing.New(d.d.Clock, func() error {
			if err := d.mayReach(r, res, m.Name); errkind.Is(err, errkind.Denied) {
				return err
			}
			return nil // nothing is known of the token now
		}).Hold(r.Context())
		defer release()
		r = r.WithContext(held)
	}
	stream, err := d.reachMember(r, there, m, res)
	switch {
	case errkind.Is(err, errkind.Denied):
		http.Error(w, errkind.Text(err), http.StatusForbidden)
		return
	case err == nil:
		defer stream.Close()
		err = forward.CopyStream(w, stream)
	}
	switch {
	case errors.Is(err, answer.ErrCut):
		answer.Cut()
	case err != nil:
		http.Error(w, "the member "+name+" at "+base.MemberRPC(m)+" does not answer: "+err.Error(),
			http.StatusServiceUnavailable)
	}
}

// reachMember asks a member for what r wants of it, which is there. Servers judge the caller's token themselves; it
// goes to no agent: of those a server asks on its own behalf, and an agent asks a server to do so.
func (d *Doctor) reachMember(r, there *http.Request, m member.Member, res acl.Resource) (*rpc.Stream, error) {
	addr, ask, hops := base.MemberRPC(m), there, rows.JourneyOf(r.Context()).Hops+1
	switch {
	case m.Tags["role"] == base.RoleServer:
	case d.d.Cfg.Server:
		if err := d.mayReach(r, res, m.Name); err != nil {
			return nil, err
		}
		target := withoutToken(there.URL)
		return d.d.RPC.Stream(r.Context(), addr, MethodAskStream,
			pack.String(pack.String(nil, target), r.Header.Get("Accept-Encoding")))
	default:
		var err error
		if addr, err = d.d.AnyServer(); err != nil {
			return nil, err
		}
		ask = r.Clone(r.Context())
		ask.Body = http.NoBody
	}
	req, err := forward.Encode(ask, rows.Journey{Hops: hops})
	if err != nil {
		return nil, err
	}
	return d.d.RPC.Stream(r.Context(), addr, forward.MethodStream, pack.Bytes(pack.String(nil, ""), req))
}

// mayReach judges who asks for diagnostics of a member.
func (d *Doctor) mayReach(r *http.Request, res acl.Resource, name string) error {
	if !d.d.Cfg.ACL.Enabled {
		return nil
	}
	token := rows.Secret(r)
	if token == "" && rows.JourneyOf(r.Context()).Hops == 0 {
		token = d.d.Tokens.Get(base.TokenDefault)
	}
	grant, err := d.access.Grant(r.Context(), token)
	if err != nil {
		return err
	}
	if res == acl.Operator {
		name = ""
	}
	return grant.Check(res, name, acl.Read)
}

// withoutToken is a URL's path and query as an agent may see them. Its doctor reports about itself: it would need the
// token to ask others.
func withoutToken(u *url.URL) string {
	query := u.Query()
	query.Del("token")
	if u.Path == "/v1/doctor" {
		query.Set("local", "")
	}
	return (&url.URL{Path: u.Path, RawQuery: query.Encode()}).RequestURI()
}

// services are those that are registered on this host, by port.
func (d *Doctor) services() map[uint16]string {
	out := map[uint16]string{}
	if d.d.Local == nil {
		return out
	}
	for _, s := range d.d.Local.View().Services {
		if p := s.Service.Port; p > 0 && p < 1<<16 {
			out[uint16(p)] = s.Service.Name
		}
	}
	return out
}
