package points

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

// show is a point as the tests write it: name value time tag=value...
func show(list []*monitor.Point) (out []string) {
	for _, p := range list {
		s := fmt.Sprint(p.Name, " ", p.Value, " ", p.Timestamp)
		for _, t := range p.Tags {
			s += " " + t.Name + "=" + t.Value
		}
		out = append(out, s)
	}
	return out
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		format, output string
		want           []string
		problems       int
	}{
		"nagios": {"nagios_perfdata",
			"PING OK - Packet loss = 0% | percent_packet_loss=0 rta=0.80ms;100;200;0\n",
			[]string{"percent_packet_loss 0 7 dc=eu", "rta 0.8 7 dc=eu"}, 0},
		"nagios quoted": {"nagios_perfdata", "OK|'C:\\ used'=5GB;;;0;10 x=-1.5",
			[]string{`'C:\_used' 5 7 dc=eu`, "x -1.5 7 dc=eu"}, 0},
		"nagios without": {"nagios_perfdata", "OK", nil, 1},
		"nagios twice":   {"nagios_perfdata", "OK|a=1|b=2", nil, 1},
		"nagios partly":  {"nagios_perfdata", "OK| a=1 b c=U =4", []string{"a 1 7 dc=eu"}, 3},
		"graphite": {"graphite_plaintext", "a.b 1.5 100\n\nc;x=y;z=1 2 101\n",
			[]string{"a.b 1.5 100 dc=eu", "c 2 101 x=y z=1 dc=eu"}, 0},
		"graphite wrong": {"graphite_plaintext", "a.b 1.5\na x 1\na 1 x\na;b 1 2\nok 1 1",
			[]string{"ok 1 1 dc=eu"}, 4},
		"influx": {"influxdb_line",
			"weather,location=us-midwest temperature=82,humidity=71 1465839830100400200\nload v=1\n",
			[]string{"weather.temperature 82 1465839830 location=us-midwest dc=eu",
				"weather.humidity 71 1465839830 location=us-midwest dc=eu", "load.v 1 7 dc=eu"}, 0},
		"influx escaped":         {"influxdb_line", `my\ m,a\,b=c\=d e\ f=1 5`, []string{"my m.e f 1 5 a,b=c=d dc=eu"}, 0},
		"influx ends in a slash": {"influxdb_line", `m a=1 5\`, nil, 1},
		"influx, no float":       {"influxdb_line", "a b=1,c=2i 5\na b=\"x\" 5\na,x b=1 5\na b=1 x\na", nil, 5},
		"opentsdb": {"opentsdb_line",
			"sys.cpu 1356998400 42.5 host=webserver01 cpu=0\nput m 1356998400123 1 a=b",
			[]string{"sys.cpu 42.5 1356998400 host=webserver01 cpu=0 dc=eu", "m 1 1356998400 a=b dc=eu"}, 0},
		"opentsdb wrong": {"opentsdb_line", "a 1 2\na x 2 b=c\na 1 x b=c\na 1 2 b", nil, 4},
		"prometheus": {"prometheus_text",
			"# HELP up Is it.\n# TYPE up gauge\nup{job=\"a\"} 1 1500000000000\nup{job=\"b\"} NaN\nplain 3\n",
			[]string{"plain 3 7 prom_type=untyped dc=eu", "up 1 1500000000 job=a prom_help=Is it. prom_type=gauge dc=eu"}, 0},
		"prometheus histogram": {"prometheus_text",
			"# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n",
			[]string{"h_bucket 2 7 le=1 prom_type=histogram dc=eu", "h_bucket 3 7 le=+Inf prom_type=histogram dc=eu",
				"h_sum 4 7 prom_type=histogram dc=eu", "h_count 3 7 prom_type=histogram dc=eu"}, 0},
		"prometheus broken":       {"prometheus_text", "a 1\nb{ 2\n", []string{"a 1 7 prom_type=untyped dc=eu"}, 1},
		"a format of nobody":      {"xml", "a 1 2", nil, 1},
		"nothing":                 {"graphite_plaintext", "", nil, 0},
		"too many are complained": {"graphite_plaintext", strings.Repeat("x\n", 50), nil, maxProblems + 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := Read(Input{Format: c.format, Output: c.output, Executed: 7,
				Tags: []*monitor.MetricTag{{Name: "dc", Value: "eu"}}})
			if shown := show(got); !slices.Equal(shown, c.want) || len(problems) != c.problems {
				t.Errorf("%q\nwant %q\nproblems: %v", shown, c.want, problems)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	disk := &monitor.Point{Name: "disk", Value: 99}
	eth := &monitor.Point{Name: "net", Value: 10, Tags: []*monitor.MetricTag{{Name: "dev", Value: "eth0"}}}
	limits := func(min, max string, status uint32) *monitor.ThresholdLimits {
		return &monitor.ThresholdLimits{Min: min, Max: max, Status: status}
	}
	threshold := func(name string, null uint32, l ...*monitor.ThresholdLimits) *monitor.MetricThreshold {
		return &monitor.MetricThreshold{Name: name, NullStatus: null, Thresholds: l}
	}
	tagged := threshold("net", 0, limits("", "5", 3))
	tagged.Tags = []*monitor.ThresholdTag{{Name: "dev", Value: "eth0"}}
	elsewhere := threshold("net", 1, limits("", "5", 2))
	elsewhere.Tags = []*monitor.ThresholdTag{{Name: "dev", Value: "eth1"}}
	const key, note = "sensu.io/output_metric_thresholds/", "sensu.io/notifications/"
	for name, c := range map[string]struct {
		thresholds []*monitor.MetricThreshold
		status     uint32
		keys       []string
	}{
		"within": {[]*monitor.MetricThreshold{threshold("disk", 0, limits("1", "100", 2))}, 0,
			[]string{note + "ok", key + "disk/max/ok", key + "disk/min/ok"}},
		"beyond": {[]*monitor.MetricThreshold{threshold("disk", 0, limits("", "90", 1))}, 1,
			[]string{note + "warning", key + "disk/max/warning"}},
		"below": {[]*monitor.MetricThreshold{threshold("disk", 0, limits("100", "200", 2))}, 2,
			[]string{note + "critical", key + "disk/min/critical"}},
		"the worst counts": {[]*monitor.MetricThreshold{threshold("disk", 0, limits("", "95", 2), limits("", "90", 1))}, 2,
			[]string{note + "critical", key + "disk/max/critical", key + "disk/max/warning"}},
		"tags": {[]*monitor.MetricThreshold{tagged}, 3,
			[]string{note + "unknown", key + "net.eth0/max/unknown"}},
		"no such metric": {[]*monitor.MetricThreshold{threshold("none", 1, limits("", "1", 2))}, 1,
			[]string{note + "warning", key + "none/null-status/warning"}},
		"other tags": {[]*monitor.MetricThreshold{elsewhere}, 1,
			[]string{note + "warning", key + "net.eth1/null-status/warning"}},
		"nobody asked":    {nil, 0, nil},
		"absence is fine": {[]*monitor.MetricThreshold{threshold("none", 0, limits("", "1", 2))}, 0, nil},
		"ok after a breach": {[]*monitor.MetricThreshold{tagged, threshold("disk", 0, limits("", "100", 2))}, 3,
			[]string{note + "unknown", key + "disk/max/ok", key + "net.eth0/max/unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := Judge([]*monitor.Point{disk, eth}, c.thresholds)
			if keys := slices.Sorted(maps.Keys(j.Annotations)); j.Status != c.status || !slices.Equal(keys, c.keys) {
				t.Errorf("%d, %q", j.Status, keys)
			}
			if strings.Contains(j.Annotations[note+caption(j.Status)], "within") != (j.Status == 0 && len(c.keys) > 0) {
				t.Errorf("the notification is of another status: %v", j.Annotations)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"a|b=1", "a 1 2", "m,a=b c=1 5", "a 1 2 b=c", "# TYPE up gauge\nup{job=\"a\"} 1\n",
		`m\ ,\=a=b c=1`} {
		for i := range 5 {
			f.Add(byte(i), s)
		}
	}
	formats := []string{"nagios_perfdata", "graphite_plaintext", "influxdb_line", "opentsdb_line", "prometheus_text"}
	f.Fuzz(func(t *testing.T, format byte, output string) {
		points, problems := Read(Input{Format: formats[int(format)%len(formats)], Output: output, Executed: 1})
		if len(problems) > maxProblems+1 || len(points) > MaxPoints {
			t.Fatalf("%d points, %d problems", len(points), len(problems))
		}
		for _, p := range points {
			if p.Name == "" || math.IsNaN(p.Value) {
				t.Fatalf("%+v", p)
			}
		}
	})
}
