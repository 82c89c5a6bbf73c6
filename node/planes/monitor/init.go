package monitorplane

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/raftgroup"
)

// initPath is where an empty plane is initialized. It takes no login, since nobody can have one: whoever comes first
// is the administrator.
const initPath = "POST /api/corbel/v1/monitor/init"

// maxInit bounds its body.
const maxInit = 16 << 10

// minPassword is the contract's shortest password.
const minPassword = 8

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// serveInit initializes the plane once: 201, and 409 when it is so already.
func (m *Plane) serveInit(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Username string `json:"username"`
		Password string `json:"password"`
		APIKey   string `json:"api_key"`
	}
	fail := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"message": text}) // a client that left is noticed by the server
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInit))
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	switch {
	case err != nil:
		fail(http.StatusBadRequest, err.Error())
		return
	case in.Username == "":
		fail(http.StatusBadRequest, "username: is missing")
		return
	case len(in.Password) < minPassword:
		fail(http.StatusBadRequest, "password: must have at least 8 characters")
		return
	case in.Password == users.AgentPassword && m.d.Cfg.Cautious() && m.d.Cfg.MonitorExposed():
		fail(http.StatusBadRequest, "password: is Sensu's published default, and the plane is open to the network: choose "+
			"another one")
		return
	case in.APIKey != "" && !uuidForm.MatchString(in.APIKey):
		fail(http.StatusBadRequest, "api_key: is not a UUID")
		return
	case m.Group.Raft.LeaderAddr() == "" || m.Group.Raft.LastContact() > raftgroup.Silent:
		// what is here may not be what is there
		w.Header().Set("Retry-After", "1")
		fail(http.StatusServiceUnavailable, "no leader is known")
		return
	}
	switch err := m.Group.Initialize(r.Context(), in.Username, in.Password, in.APIKey); {
	case err == nil:
		m.d.Log.Info("the monitor plane has been initialized", "user", in.Username, "from", r.RemoteAddr)
		w.WriteHeader(http.StatusCreated)
	case errkind.Is(err, errkind.Conflict):
		fail(http.StatusConflict, err.Error())
	case errkind.Is(err, errkind.Invalid):
		fail(http.StatusBadRequest, err.Error())
	default:
		w.Header().Set("Retry-After", "1")
		fail(http.StatusServiceUnavailable, err.Error())
	}
}
