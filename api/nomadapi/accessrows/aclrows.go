// Package accessrows answers the rows of access control, /v1/acl: it shows the catalog's tokens, policies, roles, auth
// methods and binding rules as Nomad's clients know them.
//
// There is one access control, and the catalog keeps it: what is written here is there, and what is there is shown
// here. A management token is one that has the built-in policy global-management. Each row is answered by the process
// that was asked; who may do what, and who leads, is the catalog's business.
package accessrows

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

type request = nomadrows.Request

// globalManagement is the policy of management tokens.
const globalManagement = "global-management"

// Rows are the rows of access control.
func Rows() []nomadrows.Row {
	var list []nomadrows.Row
	add := func(methods, path string, handle func(*request) error) {
		list = append(list, nomadrows.Row{Methods: methods, Path: "/v1/acl/" + path, Own: true, Handle: on(handle)})
	}
	const write = "PUT POST"
	add(write, "bootstrap", bootstrap)
	add("GET", "tokens", tokens)
	add(write, "token", createToken)
	add("GET", "token/self", selfToken)
	add(write, "token/onetime", oneTime)
	add(write, "token/onetime/exchange", exchange)
	add("GET", "token/:id", token)
	add(write, "token/:id", updateToken)
	add("DELETE", "token/:id", deleteToken)
	add("GET", "policies", policies)
	add("GET", "policy/:name", policy)
	add(write, "policy/:name", setPolicy)
	add("DELETE", "policy/:name", deletePolicy)
	add("GET", "roles", roles)
	add(write, "role", setRole)
	add("GET", "role/name/:name", role)
	add("GET", "role/:id", role)
	add(write, "role/:id", setRole)
	add("DELETE", "role/:id", deleteRole)
	add("GET", "auth-methods", methods)
	add(write, "auth-method", createMethod)
	add("GET", "auth-method/:name", method)
	add(write, "auth-method/:name", updateMethod)
	add("DELETE", "auth-method/:name", deleteMethod)
	add("GET", "binding-rules", rules)
	add(write, "binding-rule", setRule)
	add("GET", "binding-rule/:id", rule)
	add(write, "binding-rule/:id", setRule)
	add("DELETE", "binding-rule/:id", deleteRule)
	add(write, "login", login)
	add(write, "oidc/auth-url", browserURL)
	add(write, "oidc/complete-auth", browserBack)
	return append(list, nomadrows.Row{Methods: "GET PUT POST DELETE", Path: "/v1/acl/*rest", Own: true,
		Handle: on(func(*request) error { return nomadrows.NotFound("") })})
}

// on refuses a row while access control is off.
func on(handle func(*request) error) func(*request) error {
	return func(q *request) error {
		if q.Access == nil {
			return nomadrows.BadRequest("ACL support disabled")
		}
		return handle(q)
	}
}

// ask sends a request with the caller's token.
func ask(q *request, method, path string, query url.Values, in, out any) (uint64, error) {
	return call(q, nomadrows.AccessCall{Method: method, Path: path, Query: query, In: in}, out)
}

func call(q *request, c nomadrows.AccessCall, out any) (uint64, error) {
	c.Token, c.Remote = q.Token(), q.R.RemoteAddr
	return q.Access.Ask(q.Ctx(), c, out)
}

// read is ask for a row that reads: a blocking query is one there.
func read(q *request, path string, query url.Values, out any) (uint64, error) {
	return ask(q, http.MethodGet, path, reading(q, query), nil, out)
}

// reading adds to a query how the client reads.
func reading(q *request, query url.Values) url.Values {
	if query == nil {
		query = url.Values{}
	}
	for _, name := range []string{"index", "wait"} {
		if v := q.Query.Value(name); v != "" && v != "0" {
			query.Set(name, v)
		}
	}
	if stale, err := q.Flag("stale"); err == nil && stale {
		query.Set("stale", "")
	}
	return query
}

// missing is err as 404 where the object of a read is not there.
func missing(err error, text string) error {
	if errkind.Is(err, errkind.NotFound) {
		return nomadrows.NotFound(text)
	}
	return told(err)
}

// told is err with stock's status: what is wrong in a request is 400.
func told(err error) error {
	if errkind.Is(err, errkind.Invalid) {
		return nomadrows.BadRequest("%s", errkind.Text(err))
	}
	return err
}

// begins tells whether an object belongs into a list: prefix is the parameter's.
func begins(q *request, name string) bool { return strings.HasPrefix(name, q.Query.Value("prefix")) }

// index of a written object, as it was answered.
type indexes struct{ CreateIndex, ModifyIndex uint64 }

// span is a duration that is a text or a number of nanoseconds, and is shown as a text.
type span string

// UnmarshalJSON implements json.Unmarshaler.
func (s *span) UnmarshalJSON(b []byte) error {
	text := string(b)
	if unquoted, err := strconv.Unquote(text); err == nil {
		*s = span(unquoted)
		return nil
	}
	if text == "null" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errkind.Errorf(errkind.Invalid, "%s is no duration: write it as \"1h\"", text)
	}
	if n != 0 {
		*s = span(strconv.FormatInt(n, 10) + "ns")
	}
	return nil
}
