package secretsplane

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	"corbel.dev/corbel/api/corbelapi"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/examiner"
	"corbel.dev/corbel/doctor/probe"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/cluster"
)

// vaultDoctor is the doctor of a process that runs the secrets plane alone, at /v1/sys/doctor. It asks the other
// servers of the storage over their wire.
type vaultDoctor struct {
	examiner *examiner.Examiner
	s        *Server
}

// plane makes the plane and, unless d is nil, an examiner that it serves. It starts nothing.
func (d *vaultDoctor) plane(s *Server, c secretsConfig) (_ *secretsPlane, err error) {
	if d == nil {
		return newSecretsPlane(c)
	}
	d.s = s
	d.examiner, err = examiner.New(probe.Config{Member: d.name(c.self.ID, s.peer), Role: doctor.RoleServer,
		Version: version.Number, Metrics: s.metrics,
		Dir: c.store.dir, FS: s.faults.FS(), Clock: c.clock, Log: s.log, Addresses: d.addresses, Depends: s.depends,
		Host: &probe.Host{Dir: c.store.dir, Ports: d.ports, Peer: d.peer, Cards: s.faults.Cards}})
	if err != nil {
		return nil, err
	}
	c.evidence = d.told
	c.api.Doctor = corbelapi.NewDoctor(corbelapi.Config{Evidence: d.evidence, Others: d.others, Ask: d.ask,
		Profile: d.examiner.Profile,
		Allow:   func(*http.Request) bool { return true }}) // the secrets API judged the caller
	return newSecretsPlane(c)
}

// name is a server's id where the configuration gave one, else its address: an id that was drawn says nothing to
// anybody.
func (d *vaultDoctor) name(id, address string) string {
	const drawn = 36 // a UUID's length
	if (id == "" || len(id) == drawn) && address != "" {
		return address
	}
	if id == "" {
		return hostname()
	}
	return id
}

func (d *vaultDoctor) addresses() (out []string) {
	if d.s.peer != "" {
		out = append(out, d.s.peer)
	}
	for _, a := range d.s.plane.http.Addrs() {
		out = append(out, a.String())
	}
	return out
}

// ports are the wire's.
func (d *vaultDoctor) ports() (out []int) {
	seen := map[int]bool{}
	for _, addr := range append([]string{d.s.peer}, addressesOf(d.peers())...) {
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if port, err := strconv.Atoi(text); err == nil && !seen[port] {
			seen[port] = true
			out = append(out, port)
		}
	}
	return out
}

func addressesOf(list []cluster.Server) (out []string) {
	for _, s := range list {
		out = append(out, s.ClusterAddr)
	}
	return out
}

// peer names the server at an address of the wire.
func (d *vaultDoctor) peer(ip string, port int) string {
	for _, s := range d.peers() {
		if s.ClusterAddr == net.JoinHostPort(ip, strconv.Itoa(port)) {
			return d.name(s.ID, s.ClusterAddr)
		}
	}
	return ""
}

func (d *vaultDoctor) peers() []cluster.Server {
	if d.s.plane == nil || d.s.plane.cluster == nil {
		return nil
	}
	return d.s.plane.cluster.Peers()
}

func (d *vaultDoctor) evidence() []doctor.Evidence { return []doctor.Evidence{d.examiner.Evidence()} }

// told is the evidence for another server.
func (d *vaultDoctor) told() []byte {
	b, err := json.Marshal(d.evidence())
	if err != nil {
		d.s.log.Error("doctor: evidence could not be written", "error", err)
	}
	return b
}

func (d *vaultDoctor) others() (out []corbelapi.Member) {
	for _, s := range d.peers() {
		out = append(out, corbelapi.Member{Name: d.name(s.ID, s.ClusterAddr), Role: doctor.RoleServer})
	}
	return out
}

func (d *vaultDoctor) ask(ctx context.Context, name string, _ *http.Request) ([]doctor.Evidence, error) {
	for _, s := range d.peers() {
		if d.name(s.ID, s.ClusterAddr) != name {
			continue
		}
		b, err := d.s.plane.cluster.EvidenceOf(ctx, s)
		if err != nil {
			return nil, err
		}
		var out []doctor.Evidence
		return out, json.Unmarshal(b, &out)
	}
	return nil, errkind.Errorf(errkind.Unavailable, "it left meanwhile")
}

// depends are the systems that the plane stores in.
func (s *Server) depends() []doctor.Dependency {
	if s.plane == nil {
		return nil
	}
	return []doctor.Dependency{{Plane: "secrets", Kind: s.plane.store.kind, Addresses: s.plane.store.at}}
}

// systemPaths answers paths below sys/ that are not the keeper's own.
type systemPaths func(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (data any,
	found bool, err error)

// withDoctor lets the keeper judge who may read the doctor's paths; their answer is the API's.
func withDoctor(others systemPaths) systemPaths {
	return func(ctx context.Context, op secrets.Operation, path string, f *secrets.Fields) (any, bool, error) {
		if op == secrets.Read && (path == "doctor" || path == "doctor/evidence" || path == "doctor/profile") {
			return struct{}{}, true, nil
		}
		if others == nil {
			return nil, false, nil
		}
		return others(ctx, op, path, f)
	}
}
