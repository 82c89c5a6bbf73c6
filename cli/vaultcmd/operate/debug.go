package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/cli/bundle"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"github.com/spf13/cobra"
)

// polled are the targets that are one answer at a time: the file that they go to and the path that they come from.
var polled = map[string]struct{ file, path string }{
	"config": {"config.json", "sys/config/state/sanitized"}, "host": {"host_info.json", "sys/host-info"},
	"metrics":            {"metrics.json", "sys/metrics"},
	"replication-status": {"replication_status.json", "sys/replication/status"},
	"requests":           {"requests.json", "sys/in-flight-req"},
	"server-status":      {"server_status.json", "sys/seal-status"},
}

// profiles are what the target pprof takes each time.
var profiles = []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}

// doctorFile is where corbel doctor --from looks for evidence.
const doctorFile = "cluster/doctor.json"

// maxLogBytes bounds what is kept of the server's log.
const maxLogBytes = 64 << 20

// debugging is one run of debug.
type debugging struct {
	c                           *vaultcmd.Call
	duration, interval, metrics time.Duration
	targets                     []string
	began                       time.Time

	polls  map[string][]any // by target
	errors []string
	files  []string
	add    func(path string, content []byte, when time.Time) error
}

// Debug builds debug.
func Debug(e *command.Env, cmd *cobra.Command) {
	known := append(slices.Sorted(maps.Keys(polled)), "doctor", "log", "pprof")
	f := cmd.Flags()
	duration := f.Duration("duration", 2*time.Minute, "how long to gather")
	interval := f.Duration("interval", 30*time.Second, "how often to look; at least 5s but for a shorter duration")
	metrics := f.Duration("metrics-interval", 10*time.Second, "how often to take metrics")
	output := f.String("output", "", "the archive, or the folder with -compress=false; default vault-debug-TIME.tar.gz "+
		"here")
	compress := f.Bool("compress", true, "make one archive")
	targets := f.StringSlice("target", known, "what to gather; may be given several times")
	vaultcmd.On(e, cmd, "debug", "vault debug -duration=1m -interval=20s -output=trouble.tar.gz", 0, 0,
		func(c *vaultcmd.Call, _ []string) error {
			for _, t := range *targets {
				if !slices.Contains(known, t) {
					return command.Usagef("-target %s: must be one of %s", t, strings.Join(known, ", "))
				}
			}
			if *duration <= 0 || *interval <= 0 || *metrics <= 0 {
				return command.Usagef("-duration, -interval and -metrics-interval must be above 0")
			}
			d := &debugging{c: c, duration: *duration, interval: min(*interval, *duration), metrics: min(*metrics, *duration),
				targets: *targets, began: time.Now().UTC(), polls: map[string][]any{}}
			name := *output
			if name == "" {
				name = "vault-debug-" + d.began.Format("2006-01-02T15-04-05Z")
			}
			return d.write(name, *compress)
		})
}

// write gathers into an archive, or a folder. An archive has its name once it is whole.
func (d *debugging) write(name string, compress bool) error {
	if !compress {
		if _, err := os.Stat(name); err == nil {
			return fmt.Errorf("%s is there already: give another name with -output", name)
		}
		d.add = bundle.Folder{Path: name}.Add
		if err := d.gather(name); err != nil {
			return err
		}
		return d.c.Success("Bundle written to: %s", name)
	}
	if !strings.HasSuffix(name, ".tar.gz") {
		name += ".tar.gz"
	}
	a, err := bundle.CreateArchive(name)
	if err != nil {
		return err
	}
	d.add = a.Add
	err = d.gather(name)
	if closeErr := a.Close(err == nil); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return d.c.Success("Bundle written to: %s", name)
}

// gather takes everything. What the server refuses is named in index.json; an interrupt ends it early and keeps what
// there is.
func (d *debugging) gather(name string) error {
	if _, err := d.c.Do("GET", "sys/seal-status", nil); err != nil {
		return vaultcmd.Doing("asking the server", err)
	}
	ctx, cancel := context.WithTimeout(d.c.Ctx(), d.duration)
	defer cancel()
	log := make(chan []byte, 1)
	if slices.Contains(d.targets, "log") {
		go func() { log <- d.log(ctx) }()
	} else {
		log <- nil
	}
	if err := d.poll(ctx); err != nil {
		return err
	}
	if text := <-log; text != nil {
		if err := d.put("vault.log", text); err != nil {
			return err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(d.polls)) {
		raw, err := json.MarshalIndent(d.polls[target], "", "  ")
		if err != nil {
			return err
		}
		if err := d.put(polled[target].file, raw); err != nil {
			return err
		}
	}
	if slices.Contains(d.targets, "doctor") { // last: it knows of all of the time
		if err := d.one(doctorFile, "sys/doctor/evidence", map[string]string{"cluster": ""}); err != nil {
			return err
		}
	}
	index, err := json.MarshalIndent(map[string]any{"version": 1, "vault_address": d.c.Client.Address(),
		"timestamp": d.began, "duration_seconds": d.duration.Seconds(),
		"interval_seconds": d.interval.Seconds(), "metrics_interval_seconds": d.metrics.Seconds(), "targets": d.targets,
		"output": map[string]any{"name": filepath.Base(name), "files": d.files},
		"errors": d.errors}, "", "  ")
	if err != nil {
		return err
	}
	return d.add("index.json", index, time.Now())
}

func (d *debugging) put(path string, content []byte) error {
	d.files = append(d.files, path)
	return d.add(path, content, time.Now())
}

// poll looks at every interval until the time is over.
func (d *debugging) poll(ctx context.Context) error {
	look, measure := time.NewTicker(d.interval), time.NewTicker(d.metrics)
	defer look.Stop()
	defer measure.Stop()
	wants := func(target string) bool { return slices.Contains(d.targets, target) }
	for first := true; ; first = false {
		all := first
		if !first {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
				all = true
			case <-measure.C:
			}
		}
		for _, target := range slices.Sorted(maps.Keys(polled)) {
			if wants(target) && (all && target != "metrics" || target == "metrics" && (first || !all)) {
				d.take(target)
			}
		}
		if all && wants("pprof") {
			if err := d.profile(ctx); err != nil {
				return err
			}
		}
	}
}

func (d *debugging) take(target string) {
	a, err := d.c.Do("GET", polled[target].path, nil)
	if err != nil {
		d.failed(polled[target].path, err)
		return
	}
	var value any
	if json.Unmarshal(a.Raw, &value) != nil {
		value = string(a.Raw)
	}
	d.polls[target] = append(d.polls[target], map[string]any{"timestamp": time.Now().UTC(), "data": value})
}

// failed keeps the first error of each path.
func (d *debugging) failed(path string, err error) {
	if !slices.ContainsFunc(d.errors, func(e string) bool { return strings.HasPrefix(e, path+": ") }) {
		d.errors = append(d.errors, path+": "+strings.TrimSpace(err.Error()))
	}
}

func (d *debugging) profile(ctx context.Context) error {
	folder := time.Now().UTC().Format("2006-01-02T15-04-05Z") + "/"
	for _, name := range profiles {
		if err := d.one(folder+name+".prof", "sys/pprof/"+name, nil); err != nil {
			return err
		}
	}
	seconds := fmt.Sprint(max(int(min(d.interval/4, 5*time.Second)/time.Second), 1))
	for file, path := range map[string]string{"profile.prof": "sys/pprof/profile", "trace.out": "sys/pprof/trace"} {
		if ctx.Err() != nil {
			return nil
		}
		if err := d.one(folder+file, path, map[string]string{"seconds": seconds}); err != nil {
			return err
		}
	}
	return d.one(folder+"goroutines.txt", "sys/pprof/goroutine", map[string]string{"debug": "2"})
}

func (d *debugging) one(file, path string, query map[string]string) error {
	a, err := d.c.Ask("GET", path, query, nil)
	if err != nil {
		d.failed(path, err)
		return nil
	}
	return d.put(file, a.Raw)
}

// log follows the server's log until ctx ends; nil when it cannot be had.
func (d *debugging) log(ctx context.Context) []byte {
	in, err := d.c.Client.Stream(ctx, "GET", "sys/monitor", nil)
	if err != nil {
		return fmt.Appendf(nil, "the log could not be followed: %v\n", err)
	}
	defer in.Close()
	var b bytes.Buffer
	_, _ = io.Copy(&b, io.LimitReader(in, maxLogBytes)) // it ends with ctx
	return b.Bytes()
}
