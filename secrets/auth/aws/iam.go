package aws

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
)

// serverID is the header by which a signed request says for which server of secrets it was made.
const serverID = "X-Vault-AWS-IAM-Server-ID"

// stsHeaders may stand in a signed request: none of them changes what is asked, or the answer's form.
var stsHeaders = []string{"Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "Authorization", "Content-Length", "Content-Type",
	"Host", "User-Agent", "X-Amz-Algorithm", "X-Amz-Content-Sha256", "X-Amz-Credential", "X-Amz-Date",
	"X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-User-Agent", serverID}

// caller is what STS says of who signed a request.
type caller struct {
	XMLName xml.Name `xml:"GetCallerIdentityResponse"`
	ARN     string   `xml:"GetCallerIdentityResult>Arn"`
	UserID  string   `xml:"GetCallerIdentityResult>UserId"`
	Account string   `xml:"GetCallerIdentityResult>Account"`
}

// principal logs in who signed a request to STS.
func (l *attempt) principal() (*secrets.Response, error) {
	r, err := l.found(l.role, ofIAM)
	if err != nil {
		return nil, err
	}
	c, err := auth.Find[client](l, l.view, "", clientKey)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &client{}
	}
	q, err := l.signed(c)
	if err != nil {
		return nil, err
	}
	who, err := ask(q, c)
	if err != nil {
		return nil, err
	}
	name, arn, err := canonical(who)
	if err != nil {
		return nil, err
	}
	if !r.admits(arn) {
		return nil, invalid("IAM Principal %q does not belong to the role %q", who.ARN, l.role)
	}
	n, err := l.aliases()
	if err != nil {
		return nil, err
	}
	unique, _, _ := strings.Cut(who.UserID, ":")
	a := r.Tokens.Auth()
	a.Alias = map[string]string{"role_id": r.ID, "unique_id": unique, "canonical_arn": arn, "full_arn": who.ARN}[n.IAM]
	a.DisplayName = auth.DisplayName(l.Mount, name)
	a.Metadata = map[string]string{"role": l.role, "role_id": r.ID, "auth_type": ofIAM, "account_id": who.Account,
		"canonical_arn": arn, "client_arn": who.ARN, "client_user_id": unique}
	return kept{l.role, arn}.token(a)
}

// decoded is a field in base64.
func (l *attempt) decoded(name string) (string, error) {
	text := l.f.String(name)
	if err := l.f.Err(); err != nil {
		return "", err
	}
	if text == "" {
		return "", invalid("field %q: is missing", name)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", invalid("field %q: must be base64", name)
	}
	return string(raw), nil
}

// signed is the request as it goes to STS: nothing in it may make the answer another's.
func (l *attempt) signed(c *client) (*http.Request, error) {
	if method := l.f.String("iam_http_request_method"); method != http.MethodPost {
		return nil, invalid("field \"iam_http_request_method\": must be POST")
	}
	address, err := l.decoded("iam_request_url")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" {
		return nil, invalid("field \"iam_request_url\": must be the address of STS, as https://sts.amazonaws.com/")
	}
	body, err := l.decoded("iam_request_body")
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(body)
	if err != nil || len(form) != 2 || !slices.Equal(form["Action"], []string{"GetCallerIdentity"}) ||
		len(form["Version"]) != 1 {
		return nil, invalid("field \"iam_request_body\": must be Action=GetCallerIdentity&Version=2011-06-15")
	}
	headers, err := l.headers(c)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := strings.Cut(headers.Get("Content-Type"), ";"); kind != "application/x-www-form-urlencoded" {
		return nil, invalid("field \"iam_request_headers\": Content-Type must be application/x-www-form-urlencoded")
	}
	if err := c.meant(headers); err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(l, http.MethodPost, c.endpoint(), strings.NewReader(body))
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if q.Host = u.Host; headers.Get("Host") != "" {
		q.Host = headers.Get("Host") // as it was signed
	}
	headers.Del("Host")
	headers.Del("Content-Length")
	q.Header = headers
	return q, nil
}

// headers are those of the signed request: each once, and none that is not known to be harmless.
func (l *attempt) headers(c *client) (http.Header, error) {
	given, is := l.f.Any("iam_request_headers").(map[string]any)
	if !is {
		text := l.f.String("iam_request_headers")
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			text = string(raw)
		}
		if json.Unmarshal([]byte(text), &given) != nil {
			return nil, invalid("field \"iam_request_headers\": must be an object of headers in JSON, or that in base64")
		}
	}
	out := http.Header{}
	for name, v := range given {
		if list, ok := v.([]any); ok && len(list) == 1 {
			v = list[0]
		}
		value, ok := v.(string)
		key := http.CanonicalHeaderKey(name)
		known := slices.ContainsFunc(slices.Concat(stsHeaders, c.Headers),
			func(h string) bool { return strings.EqualFold(h, name) })
		switch {
		case !ok || out[key] != nil:
			return nil, invalid("field \"iam_request_headers\": %s must have one value", key)
		case !known:
			return nil, invalid("field \"iam_request_headers\": invalid request header: %s (allowed_sts_header_values of "+
				"config/client may add it)", key)
		case strings.ContainsAny(value, "\r\n\x00"):
			return nil, invalid("field \"iam_request_headers\": %s has a line end", key)
		}
		out.Set(key, value)
	}
	return out, nil
}

// meant checks that a request was signed for this server, where the mount has a name for itself.
func (c *client) meant(headers http.Header) error {
	authorization := headers.Get("Authorization")
	if authorization == "" {
		return invalid("field \"iam_request_headers\": Authorization is missing")
	}
	if c.ServerID == "" {
		return nil
	}
	if headers.Get(serverID) != c.ServerID {
		return invalid("error validating %s header: expected %q", serverID, c.ServerID)
	}
	for part := range strings.FieldsFuncSeq(authorization, func(r rune) bool { return r == ' ' || r == ',' }) {
		if list, is := strings.CutPrefix(part, "SignedHeaders="); is &&
			slices.Contains(strings.Split(strings.ToLower(list), ";"), strings.ToLower(serverID)) {
			return nil
		}
	}
	return invalid("error validating %s header: it is not among the SignedHeaders", serverID)
}

const textOfRefusal = 300

// ask lets STS judge a request.
func ask(q *http.Request, c *client) (*caller, error) {
	status, body, err := jwks.AskRaw(q.Context(), c.CA, q)
	if err != nil {
		return nil, errkind.Errorf(errkind.Unavailable, "STS cannot be asked: %s", errkind.Text(err))
	}
	who := &caller{}
	switch {
	case status >= 500:
		return nil, errkind.Errorf(errkind.Unavailable, "STS answers with %d", status)
	case status != http.StatusOK:
		return nil, invalid("error making upstream request: received error code %d from STS: %.*s", status, textOfRefusal,
			strings.TrimSpace(string(body)))
	case xml.Unmarshal(body, who) != nil || who.ARN == "" || who.Account == "":
		return nil, invalid("the answer of STS is no GetCallerIdentityResponse")
	}
	return who, nil
}

// canonical is a principal's ARN without its session, and its name.
func canonical(who *caller) (name, arn string, err error) {
	parts := strings.SplitN(who.ARN, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[4] != who.Account {
		return "", "", invalid("STS names %q, which is no ARN of its account", who.ARN)
	}
	what := strings.Split(parts[5], "/")
	last := what[len(what)-1]
	switch {
	case parts[2] == "sts" && what[0] == "assumed-role" && len(what) == 3:
		return last, "arn:" + parts[1] + ":iam::" + who.Account + ":role/" + what[1], nil
	case parts[2] == "iam" && what[0] == "user" && len(what) >= 2:
		return last, "arn:" + parts[1] + ":iam::" + who.Account + ":user/" + last, nil
	}
	return "", "", invalid("%q is neither a user nor an assumed role", who.ARN)
}
