package sidecar

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestParseUpstream(t *testing.T) {
	for text, want := range map[string]string{
		"db:8181": "127.0.0.1:8181", "db::8181": "127.0.0.1:8181", "db:0.0.0.0:8181": "0.0.0.0:8181",
		"db:[::1]:8181": "[::1]:8181",
		"db":            "", "db:": "", ":8181": "", "db:x": "", "db:0": "", "db:70000": "", "db:1:2:3": "", "": "",
	} {
		u, err := ParseUpstream(text)
		if got := u.Bind.Text; got != want || (err == nil) != (want != "") || want != "" && u.Name != "db" {
			t.Errorf("%q: %+v, %v", text, u, err)
		}
	}
}

func TestSpecOfRegistration(t *testing.T) {
	const head = `{"Kind":"connect-proxy","ID":"web-sidecar-proxy","Port":21000,"Proxy":{"DestinationServiceName":"web"`
	for _, c := range []struct{ name, text, want, wrong string }{
		{"whole",
			head +
				`,"LocalServicePort":80,"Config":{"bind_address":"127.0.0.1","bind_port":2000,"local_connect_timeout_ms":250,"handshake_timeout_ms":1500,"max_inbound_connections":7},
			"Upstreams":[{"DestinationName":"db","LocalBindPort":8181,"Config":{"connect_timeout_ms":100}},{"DestinationType":"prepared_query","DestinationName":"q","Datacenter":"dc2","LocalBindSocketPath":"/run/q"},
			{"DestinationName":"transparent"}]}}`,
			"127.0.0.1:2000>127.0.0.1:80 250ms 1.5s 7|db 127.0.0.1:8181 100ms|q/dc2 unix:/run/q 5s", ""},
		{"defaults", head + `,"LocalServicePort":80}}`, "0.0.0.0:21000>127.0.0.1:80 5s 10s 4096", ""},
		{"socket", head + `,"LocalServiceSocketPath":"/run/web","LocalServicePort":80},"Address":"10.0.0.1"}`,
			"10.0.0.1:21000>/run/web 5s 10s 4096", ""},
		{"no proxy", `{"Kind":"","Proxy":{}}`, "", `kind is ""`},
		{"peer", head + `,"Upstreams":[{"DestinationName":"db","DestinationPeer":"east","LocalBindPort":1}]}}`, "", "peer"},
		{"twice", head + `,"Upstreams":[{"DestinationName":"a","LocalBindPort":1},{"DestinationName":"b",` +
			`"LocalBindPort":1}]}}`, "", "a and b both listen on 127.0.0.1:1"},
		{"nothing", head + `}}`, "", "does nothing"},
		{"no JSON", `{`, "", "registration"},
	} {
		s, err := specOf([]byte(c.text))
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
			}
			continue
		}
		if got := describe(&s); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func describe(s *Spec) string {
	p := s.Public
	words := []string{p.Bind.Text + ">" + p.Local.Text + " " + p.ConnectTimeout.String() + " " + p.Handshake.String() +
		" " + strconv.Itoa(p.most())}
	for _, u := range s.Upstreams {
		name, bind := u.Name, u.Bind.Text
		if u.Query {
			name += "/" + u.Datacenter
		}
		if u.Bind.Network == "unix" {
			bind = "unix:" + bind
		}
		words = append(words, name+" "+bind+" "+u.ConnectTimeout.Round(time.Millisecond).String())
	}
	return strings.Join(words, "|")
}
