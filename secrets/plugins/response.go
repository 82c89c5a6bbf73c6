package plugins

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/mount"
	"corbel.dev/corbel/secrets/plugins/message"
)

var (
	errBrokenLease = errkind.New(errkind.Corrupt, "what was kept of the lease is not what was stored")
	errBrokenLogin = errkind.New(errkind.Corrupt, "what was kept of the login is not what was stored")
	errNothing     = errkind.New(errkind.NotFound, "")
	errPath        = errkind.New(errkind.NotFound, "unsupported path")
	errOperation   = errkind.New(errkind.Conflict, "unsupported operation")
	errNoLogin     = errkind.New(errkind.Internal, "the plug-in answers with a login where nobody logs in: only auth "+
		"methods log in, at paths that need no token")
)

// answer is a plug-in's answer in the words of the plane. open: the request's path needs no token.
func answer(e *mount.Entry, r *secrets.Request, open bool, reply *message.RequestReply) (*secrets.Response, error) {
	data, err := object(reply.Response)
	if err != nil {
		return nil, err
	}
	text, failed := errorOf(reply.Response, data)
	if reply.Err != nil {
		return refused(reply.Err, text)
	}
	resp := reply.Response
	switch {
	case failed:
		return nil, errkind.New(errkind.Invalid, text)
	case resp == nil && r.Op.Writes():
		return &secrets.Response{}, nil
	case resp == nil, r.Op == secrets.List && resp.Auth == nil && isEmptyList(data):
		return nil, errNothing
	}
	if resp.Auth != nil && !(open && e.Auth()) {
		return nil, errNoLogin
	}
	if status, ok := data["http_status_code"]; ok {
		return rawAnswer(e, status, data, resp.Headers)
	}
	out := &secrets.Response{Warnings: resp.Warnings}
	if data != nil {
		out.Data = []byte(resp.Data)
	}
	if resp.Redirect != "" {
		return nil, errkind.New(errkind.Invalid, "the plug-in answers with a redirect, which is not passed on")
	}
	if resp.Auth != nil {
		out.Auth, err = login(e, r, resp.Auth)
		return out, err
	}
	if resp.Secret != nil {
		out.Lease, err = leaseOf(r, resp.Secret)
	}
	return out, err
}

// object is an answer's data; nil where it has none.
func object(resp *message.Response) (data map[string]json.RawMessage, err error) {
	if resp == nil || resp.Data == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(resp.Data), &data); err != nil {
		return nil, errkind.New(errkind.Internal, "the plug-in's answer is no JSON object")
	}
	return data, nil
}

// errorOf is the error that an answer tells of in its data, as the library of plug-ins has it.
func errorOf(resp *message.Response, data map[string]json.RawMessage) (text string, failed bool) {
	raw, ok := data["error"]
	if !ok || len(data) > 2 || resp.Secret != nil || resp.Auth != nil {
		return "", false
	}
	if _, with := data["data"]; len(data) == 2 && !with {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil && text != ""
}

func isEmptyList(data map[string]json.RawMessage) bool {
	keys := bytes.TrimSpace(data["keys"])
	return len(keys) == 0 || bytes.Equal(keys, []byte("null")) || bytes.Equal(keys, []byte("[]"))
}

// refused is a plug-in's error: of a kind where there is one that fits, else as it is to be told to the client.
func refused(e *message.Error, text string) (*secrets.Response, error) {
	text = cmp.Or(text, e.Text)
	status := http.StatusInternalServerError
	switch e.Kind {
	case message.ErrUser, message.ErrBadRequest, message.ErrInvalidRequest, message.ErrMultiAuthz:
		status = http.StatusBadRequest
	case message.ErrDenied:
		status = http.StatusForbidden
	case message.ErrUnsupportedOperation:
		return nil, errOperation
	case message.ErrUnsupportedPath:
		return nil, errPath
	case message.ErrCoded:
		if e.Code >= 400 && e.Code < 600 {
			status = int(e.Code)
		}
	}
	switch status {
	case http.StatusBadRequest:
		return nil, errkind.New(errkind.Invalid, text)
	case http.StatusForbidden:
		return nil, errkind.New(errkind.Denied, text)
	case http.StatusNotFound:
		return nil, errkind.New(errkind.NotFound, text)
	case http.StatusTooManyRequests:
		return nil, errkind.New(errkind.Overloaded, text)
	case http.StatusServiceUnavailable:
		return nil, errkind.New(errkind.Unavailable, text)
	}
	body, err := json.Marshal(map[string]any{"errors": []string{text}})
	return &secrets.Response{Raw: &secrets.Raw{Status: status, ContentType: "application/json", Body: body}}, err
}

// rawAnswer is an answer that says itself what it is for HTTP.
func rawAnswer(e *mount.Entry, status json.RawMessage, data map[string]json.RawMessage,
	headers map[string]*message.Header) (*secrets.Response, error) {
	raw := &secrets.Raw{ContentType: "application/json"}
	if err := json.Unmarshal(status, &raw.Status); err != nil || raw.Status < 200 || raw.Status > 599 {
		return nil, errkind.New(errkind.Internal, "the plug-in's answer has no status of HTTP")
	}
	var kind, body string
	if json.Unmarshal(data["http_content_type"], &kind) == nil && kind != "" {
		if !httpguts.ValidHeaderFieldValue(kind) {
			return nil, errkind.New(errkind.Internal, "the content type of the plug-in's answer is none of HTTP")
		}
		raw.ContentType = kind
	}
	if data["http_raw_body"] != nil {
		if err := json.Unmarshal(data["http_raw_body"], &body); err != nil {
			return nil, errkind.New(errkind.Internal, "the body of the plug-in's answer is no text")
		}
	}
	raw.Body = []byte(body)
	// Bytes come as base64, since data are JSON; a text comes as it is. JSON is never base64.
	if plain, err := base64.StdEncoding.DecodeString(body); err == nil && raw.ContentType != "application/json" {
		raw.Body = plain
	}
	if raw.Status == http.StatusNoContent || raw.Status == http.StatusNotModified {
		raw.Body = nil // it would be read as the beginning of the next answer
	}
	raw.Headers = passedOn(e, headers)
	return &secrets.Response{Raw: raw}, nil
}

// framing are headers that say how an answer is to be read, or what becomes of its connection: the server's alone.
var framing = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// passedOn are the headers of an answer that the mount lets through (allowed_response_headers), if they are of HTTP.
func passedOn(e *mount.Entry, headers map[string]*message.Header) (out []string) {
	for name, header := range headers {
		name = http.CanonicalHeaderKey(name)
		if !slices.ContainsFunc(e.Config.ResponseHeaders, func(s string) bool { return strings.EqualFold(s, name) }) ||
			!httpguts.ValidHeaderFieldName(name) || slices.Contains(framing, name) || strings.HasPrefix(name, "Content-") ||
			header == nil {
			continue
		}
		for _, value := range header.Values {
			if httpguts.ValidHeaderFieldValue(value) {
				out = append(out, name, value)
			}
		}
	}
	return out
}

// tokenTypes are the types of tokens by their numbers.
var tokenTypes = [...]string{"", "service", "batch", "default-service", "default-batch"}

// login is a login that a plug-in found good.
func login(e *mount.Entry, r *secrets.Request, a *message.Auth) (*secrets.Auth, error) {
	if int(a.TokenType) >= len(tokenTypes) {
		return nil, errkind.Errorf(errkind.Internal, "the plug-in's login has a token type of number %d", a.TokenType)
	}
	out := &secrets.Auth{Policies: a.Policies, Metadata: a.Metadata, NumUses: int(a.NumUses),
		Type: tokenTypes[a.TokenType], NoDefault: a.NoDefaultPolicy, BoundCIDRs: a.BoundCIDRs, Orphan: true}
	out.Period, out.ExplicitMax = time.Duration(a.Period), time.Duration(a.ExplicitMaxTTL)
	kept := loggedIn{Path: r.Rest, Internal: internal(a.Internal), Meta: a.Metadata, Display: a.DisplayName,
		Policies: a.Policies, Period: out.Period, Issued: r.Now.UTC()}
	if l := a.Lease; l != nil {
		out.TTL, out.MaxTTL, out.Renewable = time.Duration(l.TTL), time.Duration(l.MaxTTL), l.Renewable
		kept.TTL, kept.MaxTTL = out.TTL, out.MaxTTL
	}
	out.DisplayName = strings.TrimSuffix(auth.DisplayName(e.Path, a.DisplayName), "-")
	if a.Alias != nil {
		out.Alias, out.AliasMeta, kept.Alias = a.Alias.Name, a.Alias.Metadata, a.Alias.Name
	}
	for _, g := range a.GroupAliases {
		out.Groups = append(out.Groups, g.Name)
	}
	if out.Groups == nil && out.Alias != "" {
		out.Groups = []string{}
	}
	var err error
	out.Login, err = json.Marshal(kept)
	return out, err
}

// internal is what a plug-in keeps of what it gave: a JSON object.
func internal(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(text)
}

// leaseOf is the lease of a secret.
func leaseOf(r *secrets.Request, s *message.Secret) (*secrets.Lease, error) {
	out := &secrets.Lease{}
	if l := s.Lease; l != nil {
		out.TTL, out.MaxTTL, out.Renewable = time.Duration(l.TTL), time.Duration(l.MaxTTL), l.Renewable
	}
	var err error
	out.Internal, err = json.Marshal(leased{Path: r.Rest, Internal: internal(s.Internal), Issued: r.Now.UTC(),
		TTL: out.TTL, MaxTTL: out.MaxTTL})
	return out, err
}
