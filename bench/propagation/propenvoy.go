package propagation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/bench/sidecars"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// envoys are the real ones of a run: half of them in front of the common
// upstream's instances, the others call it. They are sidecars of simulated hosts
// like all others, so they get what these get.
type envoys struct {
	o        *PropagationOptions
	binary   string
	dir      string
	app      *spawn.Process // what the common upstream's instances are
	appAddr  string
	ports    []int // of the public listeners of those in front
	all      []*envoy
	requests int
}

type envoy struct {
	proc   *spawn.Process
	extra  propExtra
	admin  string
	caller bool
}

// propExtra is a registration that a real Envoy goes by. Its JSON is node.simExtra.
type propExtra struct {
	Service      string `json:"service"`
	ID           string `json:"id"`   // of the sidecar
	Port         int    `json:"port"` // of its public listener
	LocalPort    int    `json:"local_port"`
	UpstreamPort int    `json:"upstream_port"` // where it binds the common upstream; 0 is nowhere
}

// requestsPerRound go through the real Envoys after each round.
const requestsPerRound = 10_000

// findEnvoys returns nil when none are asked for or no binary is to be found; said is what the result tells.
func findEnvoys(o *PropagationOptions) (e *envoys, said string, err error) {
	if o.Envoys == 0 {
		return nil, "none were asked for (--envoys)", nil
	}
	binary := o.EnvoyBinary
	if binary == "" {
		if binary, err = exec.LookPath("envoy"); err != nil {
			return nil, "none took part: no envoy was found in PATH (--envoy-binary)", nil
		}
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, "", err
	}
	out, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return nil, "", fmt.Errorf("--envoy-binary: %s --version: %w", binary, err)
	}
	_, version, _ := strings.Cut(string(out), "version: ") // hash/1.40.0/Clean/RELEASE/BoringSSL
	if words := strings.Split(strings.TrimSpace(version), "/"); len(words) > 1 {
		version = words[1]
	}
	return &envoys{o: o, binary: binary}, fmt.Sprintf("%d of Envoy %s, half of them called by the others", o.Envoys,
		version), nil
}

// prepare picks the ports, starts the application and gives the first hosts their Envoys.
func (e *envoys) prepare(ctx context.Context, f *propFleet, dir string) error {
	e.dir = dir
	var err error
	if e.appAddr, err = bench.FreeAddr(); err != nil {
		return err
	}
	if e.app, err = bench.StartProcess(e.o.Binary, []string{"bench", "hello", "--addr", e.appAddr}, dir); err != nil {
		return err
	}
	if err := bench.WaitHTTP(ctx, e.app, e.appAddr, "/", bench.OK); err != nil {
		return err
	}
	ports, err := testport.Free(2 * e.o.Envoys)
	if err != nil {
		return err
	}
	_, app, _ := strings.Cut(e.appAddr, ":")
	appPort, err := strconv.Atoi(app)
	if err != nil {
		return err
	}
	for i := range e.o.Envoys {
		v := &envoy{caller: i%2 == 1, extra: propExtra{Service: commonService, ID: fmt.Sprintf("real-%d", i),
			Port: ports[2*i], LocalPort: appPort}}
		if v.caller {
			v.extra.Service, v.extra.UpstreamPort = "caller", ports[2*i+1]
		} else {
			e.ports = append(e.ports, v.extra.Port)
		}
		e.all = append(e.all, v)
		h := &f.all[i%len(f.all)]
		h.Extras = append(h.Extras, v.extra)
	}
	return nil
}

// start runs the Envoys and waits until requests pass through all of them.
func (e *envoys) start(ctx context.Context, f *propFleet) error {
	for i, v := range e.all {
		h := &f.all[i%len(f.all)]
		config := filepath.Join(e.dir, fmt.Sprintf("envoy-%d.json", i))
		if err := os.WriteFile(config, bootstrapOf(v.extra.ID, h), 0o600); err != nil {
			return err
		}
		admin := filepath.Join(e.dir, fmt.Sprintf("envoy-%d.admin", i))
		var err error
		if v.proc, err = bench.StartProcess(e.binary, []string{"-c", config, "--disable-hot-restart", "--concurrency", "1",
			"--log-level", "warning",
			"--admin-address-path", admin}, e.dir); err != nil {
			return err
		}
		if err := spawn.Until(ctx, time.Minute, "envoy", func() error {
			data, err := os.ReadFile(admin)
			if v.admin = strings.TrimSpace(string(data)); err == nil && v.admin == "" {
				err = errors.New("the admin address is not written yet")
			}
			return err
		}); err != nil {
			return fmt.Errorf("envoy %d: %w\n%s", i, err, v.proc.Log())
		}
	}
	for _, v := range e.all {
		if !v.caller {
			continue
		}
		if err := spawn.Until(ctx, time.Minute, "envoy", func() error { return e.call(ctx, v, 20) }); err != nil {
			return fmt.Errorf("through envoy %s: %w\n%s", v.extra.ID, err, v.proc.Log())
		}
	}
	return nil
}

func (e *envoys) call(ctx context.Context, v *envoy, n int) error {
	addr := "127.0.0.1:" + strconv.Itoa(v.extra.UpstreamPort)
	raw := bench.Request("GET", addr, "/", "", nil)
	_, err := bench.RunCount(ctx, addr, 4, n, func(int) []byte { return raw })
	return err
}

// check has the requests of a round go through the Envoys and, when a marker is
// given, waits until every caller has (or has not) that address. It returns by
// when all of them surely had it.
func (e *envoys) check(ctx context.Context, w sidecars.Watch, start int64) (millis float64, err error) {
	callers := 0
	for _, v := range e.all {
		if v.caller {
			callers++
		}
	}
	for _, v := range e.all {
		if !v.caller {
			continue
		}
		if w.Type == urlEndpoints && w.Marker != "" {
			if err := spawn.Until(ctx, e.o.Deadline, "envoy", func() error {
				r, err := getOnce(ctx, v.admin, "/clusters")
				if err == nil && strings.Contains(r, "::"+w.Marker+":") == w.Gone {
					err = fmt.Errorf("envoy %s: the address %s is there: %t", v.extra.ID, w.Marker, w.Gone)
				}
				return err
			}); err != nil {
				return 0, err
			}
			millis = max(millis, float64(sidecars.Monotonic()-start)/1e6)
		}
	}
	for _, v := range e.all {
		if v.caller {
			if err := e.call(ctx, v, requestsPerRound/callers+1); err != nil {
				return 0, fmt.Errorf("requests through envoy %s: %w", v.extra.ID, err)
			}
			e.requests += requestsPerRound/callers + 1
		}
	}
	return millis, nil
}

func (e *envoys) close() {
	for _, v := range e.all {
		if v.proc != nil {
			v.proc.Kill()
		}
	}
	if e.app != nil {
		e.app.Kill()
	}
}

func getOnce(ctx context.Context, addr, path string) (string, error) {
	c, err := bench.DialWire(ctx, addr, 64<<10)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	r, err := c.Do(bench.Request("GET", addr, path, "", nil), true, bench.IoDeadline)
	if err == nil && r.Status != 200 {
		err = fmt.Errorf("GET %s: status %d", path, r.Status)
	}
	return string(r.Body), err
}

// bootstrapOf is what `connect envoy` gives an Envoy, as far as it needs it here.
func bootstrapOf(id string, h *propHost) []byte {
	type object = map[string]any
	host, port, _ := strings.Cut(h.addr, ":")
	number, _ := strconv.Atoi(port)
	socket := func(host string, port int) object {
		return object{"socket_address": object{"address": host, "port_value": port}}
	}
	const http2Options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	ads := object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	out, err := json.Marshal(object{
		"admin": object{"address": socket("127.0.0.1", 0)},
		"node":  object{"id": id, "cluster": id, "metadata": object{"node_name": h.Node}},
		"static_resources": object{"clusters": []any{object{"name": "agent", "type": "STATIC", "connect_timeout": "5s",
			"typed_extension_protocol_options": object{http2Options: object{"@type": "type.googleapis.com/" + http2Options,
				"explicit_http_config": object{"http2_protocol_options": object{}}}},
			"load_assignment": object{"cluster_name": "agent", "endpoints": []any{object{"lb_endpoints": []any{
				object{"endpoint": object{"address": socket(host, number)}}}}}}}}},
		"dynamic_resources": object{"lds_config": ads, "cds_config": ads, "ads_config": object{"api_type": "DELTA_GRPC",
			"transport_api_version": "V3", "grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "agent"}}}}},
	})
	if err != nil {
		panic(err) // it is made of strings and numbers
	}
	return out
}
