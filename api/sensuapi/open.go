package sensuapi

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Member is a server of the plane, as /health shows it.
type Member struct {
	ID   string // a UUID
	Name string
	// Err is why it does not answer; "" is healthy.
	Err string
}

// Cluster is what /health says of the plane's servers.
type Cluster struct {
	ID      string // of the cluster
	Self    string // of this server
	Term    uint64
	Members []Member
	// Postgres are the databases that keep events; none where the servers do.
	Postgres []Postgres
}

// Postgres is a database, as /health shows it.
type Postgres struct {
	Name            string
	Active, Healthy bool
}

// Header is what answers about the cluster begin with.
func (c *Cluster) Header() map[string]uint64 {
	return map[string]uint64{"cluster_id": NumberOf(c.ID), "member_id": NumberOf(c.Self), "raft_term": c.Term}
}

// OpenConfig is what the endpoints are made of that need no login.
type OpenConfig struct {
	// Cluster is asked at each request of /health, and must not block.
	Cluster func() Cluster
	// Lacks tells what this server waits for before it is ready; nothing when it is.
	Lacks func() []string
	// Version is the contract's, Own the program's.
	Version, Own string
	Metrics      http.Handler
}

// noGraphQL is what whoever speaks GraphQL is told: in the form of GraphQL's errors, which its clients show, and of the
// contract's own.
const noGraphQL = `{"message":"Corbel answers no GraphQL: use the REST API below /api/core/v2, and the web UI at /ui of ` +
	`this port","code":2,"errors":[{"message":"Corbel answers no GraphQL: use the REST API below /api/core/v2, and the ` +
	`web UI at /ui of this port"}]}` + "\n"

// Open answers /health, /version, /ready and /metrics (contract SX-10 to SX-12), and refuses /graphql (SX-13) with a
// reason.
func Open(cfg OpenConfig) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { writeHealth(w, r, cfg.Cluster()) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeOpen(w, http.StatusOK, map[string]any{
			// there is none; sensuctl prints both
			"etcd":          map[string]string{"etcdserver": "3.5.0", "etcdcluster": "3.5.0"},
			"sensu_backend": cfg.Version + "-corbel." + cfg.Own,
			"api_groups":    map[string]string{"core/v2": "core/v2", "core/v3": "core/v3"},
		})
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if lacks := cfg.Lacks(); len(lacks) > 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not ready: "+strings.Join(lacks, "; "), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.HandleFunc("POST /graphql", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotImplemented)
		_, _ = io.WriteString(w, noGraphQL)
	})
	return mux
}

// NumberOf is an id as the contract shows one: 64 bits.
func NumberOf(id string) uint64 {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// writeHealth answers with 200 always; timeout is in seconds, and more than enough: nothing is asked of anybody.
func writeHealth(w http.ResponseWriter, r *http.Request, c Cluster) {
	if text := r.URL.Query().Get("timeout"); text != "" {
		if seconds, err := strconv.Atoi(text); err != nil || seconds < 0 || time.Duration(seconds) > time.Hour {
			writeOpen(w, http.StatusBadRequest, map[string]any{"message": "timeout: " + strconv.Quote(text) +
				" is not a number of seconds", "code": 1})
			return
		}
	}
	type member struct {
		MemberID    uint64
		MemberIDHex string
		Name        string
		Err         string
		Healthy     bool
	}
	members := make([]member, 0, len(c.Members))
	for _, m := range c.Members {
		id := NumberOf(m.ID)
		members = append(members, member{id, strconv.FormatUint(id, 16), m.Name, m.Err, m.Err == ""})
	}
	body := map[string]any{"Alarms": []any{}, "ClusterHealth": members, "Header": c.Header()}
	if len(c.Postgres) > 0 {
		body["PostgresHealth"] = c.Postgres
	}
	writeOpen(w, http.StatusOK, body)
}

// writeOpen writes JSON with the type that these endpoints have in the reference.
func writeOpen(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left is noticed by the server
}
