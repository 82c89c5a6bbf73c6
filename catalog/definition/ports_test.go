package definition

import (
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/pack"
)

func TestNamedPorts(t *testing.T) {
	d := mustService(t, `{"Name":"api","ports":[{"name":"http","port":8080,"default":true},{"Name":"grpc","Port":"9090"}],
		"Connect":{"SidecarService":{}}}`)
	want := []catalog.NamedPort{{Name: "http", Port: 8080, Default: true}, {Name: "grpc", Port: 9090}}
	if err := d.Validate(); err != nil || !reflect.DeepEqual(d.Ports, want) {
		t.Fatalf("%+v, %v", d.Ports, err)
	}
	s := d.CatalogService("n")
	if grpc, ok := s.PortNamed("GRPC"); s.Port != 8080 || grpc != 9090 || !ok {
		t.Errorf("%+v", s)
	}
	if _, ok := s.PortNamed("metrics"); ok {
		t.Error("a port that is not there was found")
	}
	_, proxy, err := d.Split(func(string) (int, error) { return 21000, nil })
	if err != nil || !strings.Contains(string(proxy.Proxy), `"LocalServicePort":8080`) || len(proxy.Ports) != 0 {
		t.Errorf("%s, %v", proxy.Proxy, err)
	}
	other := *s
	other.Ports = nil
	if s.Same(&other) {
		t.Error("an instance with other ports is the same")
	}
	if r := catalog.ReadService(pack.Read(catalog.AppendService(nil, s))); !reflect.DeepEqual(r.Ports, want) {
		t.Errorf("%+v", r.Ports)
	}
}

func TestNamedPortsAreChecked(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","port":1,"default":true},{"name":"b","port":1}`:                "",
		`{"name":" ","port":1,"default":true}`:                                      "Ports.Name cannot be empty",
		`{"name":"a","default":true}`:                                               "Ports.Port must be non-zero",
		`{"name":"a","port":-1,"default":true}`:                                     "Invalid Ports.Port -1",
		`{"name":"a","port":70000,"default":true}`:                                  "Invalid Ports.Port 70000",
		`{"name":"a","port":1,"default":true},{"name":"A","port":2}`:                "has to be unique",
		`{"name":"a","port":1},{"name":"b","port":2}`:                               "must be marked as Default",
		`{"name":"a","port":1,"default":true},{"name":"b","port":2,"default":true}`: "only one port",
	} {
		err := mustService(t, `{"Name":"api","Ports":[`+body+`]}`).Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", body, err)
		}
	}
	err := mustService(t, `{"Name":"api","Port":9,"Ports":[{"name":"a","port":1,"default":true}]}`).Validate()
	if err == nil || !strings.Contains(err.Error(), "leave Port out") {
		t.Error(err)
	}
	if _, err := ServiceFromMap("service", map[string]any{"name": "a",
		"ports": []any{map[string]any{"nmae": "x"}}}); err == nil || !strings.Contains(err.Error(), "service.ports[0].nmae") {
		t.Error(err)
	}
}
