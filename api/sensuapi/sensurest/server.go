package sensurest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"corbel.dev/corbel/api/sensuapi"
)

func (a *API) root(w http.ResponseWriter, _ *http.Request) {
	text(w, "Corbel: the monitor's API is at /api/core/v2")
}

// cluster answers what is asked of the servers.
type cluster struct{ *request }

// members answers with the servers. They join and leave by themselves.
func (q cluster) members() error {
	if q.name != "members" && q.name != "id" || len(q.rest) > 1 {
		return errNotFound
	}
	verb := q.verb()
	if len(q.rest) == 0 && verb == "get" {
		verb = "list"
	}
	if err := q.may(verb, "cluster-members", "", ""); err != nil {
		return err
	}
	c := q.cfg.Cluster()
	if verb != "get" && verb != "list" {
		return invalid(errors.New("servers join and leave by themselves: see `corbel join`, `corbel leave` and `corbel " +
			"operator raft`"))
	}
	if q.name == "id" {
		return q.answer(http.StatusOK, strconv.FormatUint(sensuapi.NumberOf(c.ID), 16))
	}
	type member struct {
		ID      uint64   `json:"ID"`
		Name    string   `json:"name"`
		Peers   []string `json:"peerURLs"`
		Clients []string `json:"clientURLs"`
	}
	members := []member{}
	for _, m := range c.Members {
		id := sensuapi.NumberOf(m.ID)
		if len(q.rest) == 0 || q.rest[0] == strconv.FormatUint(id, 16) {
			members = append(members, member{id, m.Name, []string{}, []string{}})
		}
	}
	if len(q.rest) > 0 && len(members) == 0 {
		return errNotFound
	}
	return q.answer(http.StatusOK, struct {
		Header  map[string]uint64 `json:"header"`
		Members []member          `json:"members"`
	}{c.Header(), members})
}

// tessen answers that nothing is sent home, whatever is asked for.
func (q cluster) tessen() error {
	if len(q.rest) > 0 || q.name != "" && q.name != "metrics" {
		return errNotFound
	}
	verb := q.verb()
	if verb == "list" {
		verb = "get"
	}
	if err := q.may(verb, "tessen", "", ""); err != nil {
		return err
	}
	switch {
	case q.name == "metrics" && q.r.Method == http.MethodPost:
		return q.done()
	case q.name == "metrics":
		return q.notAllowed("POST")
	case q.r.Method == http.MethodPut:
		var in struct {
			OptOut bool `json:"opt_out"`
		}
		b, err := q.body()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, &in); err != nil {
			return invalid(err)
		}
	case q.r.Method != http.MethodGet && q.r.Method != http.MethodHead:
		return q.notAllowed("GET, PUT")
	}
	return q.answer(http.StatusOK, map[string]bool{"opt_out": true})
}
