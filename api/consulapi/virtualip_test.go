package consulapi

import "testing"

// TestManualVirtualIPs: an address is one service's; who loses it is told.
func TestManualVirtualIPs(t *testing.T) {
	r := newRig(t, nil)
	const path = "/v1/internal/service-virtual-ip"
	for _, name := range []string{"one", "two"} {
		r.want("PUT", "/v1/config", `{"Kind":"service-resolver","Name":"`+name+`"}`, 200, "true")
	}
	r.run([]step{
		{"PUT", path, `{"Service":"missing","ManualVIPs":["1.1.1.1"]}`, 200, `{"Found":false,"UnassignedFrom":null}`},
		{"POST", path, `{"Service":"one","ManualVIPs":["1.1.1.1","2.2.2.2","1.1.1.1"]}`, 200,
			`{"Found":true,"UnassignedFrom":null}`},
		{"PUT", path, `{"Service":"two","ManualVIPs":["2.2.2.2"]}`, 200, `{"Found":true,"UnassignedFrom":[{"ServiceName":` +
			`{"Name":"one","Namespace":"default","Partition":"default"}}]}`},
		{"PUT", path, `{"Service":"one","ManualVIPs":[]}`, 200, `{"Found":true,"UnassignedFrom":null}`},
		{"PUT", path, `{"Service":"one","ManualVIPs":["1.1.1.1"]}`, 200, `{"Found":true,"UnassignedFrom":null}`},
		{"PUT", path, `{"Service":"one","ManualVIPs":["0.0.0.0"]}`, 400, "*"},
		{"PUT", path, `{"Service":"one","ManualVIPs":["web"]}`, 400, "*"},
		{"PUT", path, `{"ManualVIPs":["1.1.1.1"]}`, 400, "*"},
		{"PUT", path, `{"Service":"one","Peer":"nobody","ManualVIPs":["1.1.1.1"]}`, 200,
			`{"Found":false,"UnassignedFrom":null}`},
	})
}
