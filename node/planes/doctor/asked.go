package doctorplane

import (
	"context"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/forward"
)

// What servers ask of other members: how their proxies stand, and diagnostics of their process. A server judges its
// caller and asks on its own behalf, so that no caller's token is shown to an agent. Members take these calls from
// servers alone, and answer nothing else that comes over the network as an HTTP request, unless they are servers
// themselves.
const (
	MethodAsk       = "ask"        // the answer in one message
	MethodAskStream = "ask.stream" // an answer of any length
)

// right is what somebody needs who asks for a path of a member.
type pathRight struct {
	path string // a / at the end stands for all below
	res  acl.Resource
}

// diagnostics are the paths that may be asked of another member by its name: what tells about its process, and
// changes nothing.
var diagnostics = []pathRight{
	{"/v1/agent/self", acl.Agent}, {"/v1/agent/host", acl.Operator}, {"/v1/agent/version", acl.Agent},
	{"/v1/agent/metrics", acl.Agent},
	{"/v1/agent/metrics/stream", acl.Agent}, {"/v1/agent/monitor", acl.Agent}, {"/v1/doctor", acl.Operator},
	{"/v1/doctor/evidence", acl.Operator},
	{"/v1/doctor/profile", acl.Operator}, {"/debug/pprof/", acl.Operator},
	{planesPath, acl.Operator}, {logPath, acl.Operator},
}

// meshQuestions are the paths about a host's proxies that servers ask for.
const meshQuestions = "/v1/internal/mesh/"

// diagnostic finds what a path needs; false when nobody may ask another member for it.
func diagnostic(path string) (acl.Resource, bool) {
	for _, known := range diagnostics {
		if path == known.path || strings.HasSuffix(known.path, "/") && strings.HasPrefix(path,
			known.path) && !strings.Contains(path, "..") {
			return known.res, true
		}
	}
	return acl.NoResource, false
}

// answerable tells whether servers may ask for a path.
func answerable(path string) bool {
	_, known := diagnostic(path)
	return known || strings.HasPrefix(path, meshQuestions) && !strings.Contains(path, "..")
}

// judged is a question of a server as a request to this process's own API. Its address is nobody's.
func judged(ctx context.Context, target string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(rows.Judged(ctx), http.MethodGet, target, nil)
	if err != nil || !strings.HasPrefix(target, "/") {
		return nil, errkind.New(errkind.Invalid, "a server's question has no path")
	}
	if !answerable(r.URL.Path) {
		return nil, errkind.Errorf(errkind.Denied, "servers do not ask for %s", r.URL.Path)
	}
	r.RequestURI = target
	return r, nil
}

func (d *Doctor) answerServer(ctx context.Context, target string) (*httpx.Recorder, error) {
	r, err := judged(ctx, target)
	if err != nil {
		return nil, err
	}
	return httpx.Answer(d, r)
}

// serveAsked implements MethodAsk.
func (d *Doctor) serveAsked(ctx context.Context, req []byte) ([]byte, error) {
	rd := pack.Read(req)
	target := rd.String()
	if rd.Err() != nil {
		return nil, errkind.E(errkind.Invalid, "a server's question", rd.Err())
	}
	answer, err := d.answerServer(ctx, target)
	if err != nil {
		return nil, err
	}
	return forward.EncodeReply(answer), nil
}

// serveAskedStream implements MethodAskStream.
func (d *Doctor) serveAskedStream(ctx context.Context, req []byte, send func([]byte) error) error {
	rd := pack.Read(req)
	target, encoding := rd.String(), rd.String()
	if rd.Err() != nil {
		return errkind.E(errkind.Invalid, "a server's question", rd.Err())
	}
	r, err := judged(ctx, target)
	if err != nil {
		return err
	}
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	w := forward.NewStreamWriter(send)
	d.ServeHTTP(w, r)
	return w.End()
}

// reachTime bounds one question to a member.
const reachTime = 3 * time.Second

// Ask asks a member with GET, as a server.
func (d *Doctor) Ask(ctx context.Context, node, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if node == d.d.Cfg.Node.Name {
		answer, err := d.answerServer(ctx, path)
		if err != nil {
			return 0, nil, err
		}
		return answer.Status, answer.Body, nil
	}
	m, ok := d.d.Pool.Member(member.ActAskMember, node)
	if !ok {
		return 0, nil, errkind.Errorf(errkind.NotFound, "no member has the name %q", node)
	}
	reply, err := d.d.Members.Call(ctx, base.MemberRPC(m), MethodAsk, pack.String(nil, path))
	if err != nil {
		return 0, nil, err
	}
	status, _, body, err := forward.DecodeReply(reply)
	return status, body, err
}
