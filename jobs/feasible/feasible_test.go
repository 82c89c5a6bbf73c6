package feasible

import (
	"testing"

	"corbel.dev/corbel/jobs"
)

func testNode() *jobs.Node {
	return &jobs.Node{
		ID: jobs.ID{1, 2, 3}, Name: "web-1", Datacenter: "eu-west-1", Class: "big", Pool: "blue",
		Attributes: map[string]string{"kernel.name": "linux", "kernel.version": "5.10.3", "cpu.numcores": "16",
			"os.signals": "SIGHUP, SIGINT,SIGTERM", "nomad.version": "1.6.0-beta.1", "unique.hostname": "web-1.example",
			"driver.java.version": "17.0.15"},
		Meta: map[string]string{"rack": "r7", "load": "0.75", "empty": ""},
	}
}

// TestNO4 has a row for each operator of the contract, and for what it does with what is missing.
func TestNO4(t *testing.T) {
	for _, test := range []struct {
		left, operand, right string
		want                 bool
	}{
		{"${attr.kernel.name}", "=", "linux", true}, {"${attr.kernel.name}", "==", "linux", true},
		{"${attr.kernel.name}", "is", "windows", false}, {"linux", "=", "${attr.kernel.name}", true},
		{"${attr.none}", "=", "", false}, {"${meta.empty}", "=", "", true}, {"${node.region}", "=", "x", false},
		{"${attr.kernel.name}", "!=", "windows", true}, {"${attr.kernel.name}", "not", "linux", false},
		{"${attr.none}", "!=", "linux", true}, {"${meta.none}", "!=", "${attr.none}", false},
		{"${attr.cpu.numcores}", ">", "9", true}, {"${attr.cpu.numcores}", "<", "9", false},
		{"${attr.cpu.numcores}", "<=", "16", true}, {"${attr.cpu.numcores}", ">=", "16.5", false},
		{"${meta.load}", "<", "0.8", true}, {"${meta.rack}", ">", "r10", true}, {"${attr.none}", "<", "1", false},
		{"${meta.rack}", "regexp", "^r[0-9]$", true}, {"${meta.rack}", "regexp", "^x", false},
		{"${attr.none}", "regexp", ".*", false},
		{"${attr.kernel.version}", "version", ">= 5.4, < 6", true}, {"${attr.kernel.version}", "version", "~> 5.10.0", true},
		{"${attr.kernel.version}", "version", "> 5.10.3", false}, {"${attr.kernel.name}", "version", "> 1", false},
		{"${attr.driver.java.version}", "version", ">= 17, < 18", true}, // as docs/jobs-nodes.md says
		{"${driver.java.version}", "version", ">= 17, < 18", false},
		{"${attr.nomad.version}", "version", ">= 1.5.0", false}, // a pre-release is not asked for
		{"${attr.nomad.version}", "semver", ">= 1.5.0", true}, {"${attr.nomad.version}", "semver", ">= 1.6.0", false},
		{"${attr.nomad.version}", "semver", "> 1.6.0-alpha.9, != 1.6.0", true}, {"${attr.none}", "semver", "> 1.0.0", false},
		{"${attr.os.signals}", "set_contains", "SIGTERM,SIGHUP", true},
		{"${attr.os.signals}", "set_contains_all", "SIGTERM, SIGKILL", false},
		{"${attr.os.signals}", "set_contains_any", "SIGKILL,SIGINT", true},
		{"${attr.os.signals}", "set_contains_any", "SIGKILL", false},
		{"${attr.kernel.name}", "is_set", "", true}, {"${attr.none}", "is_set", "", false},
		{"${attr.none}", "is_not_set", "", true}, {"${meta.empty}", "is_not_set", "", false},
		// NO-5
		{"${node.unique.id}", "=", "01020300-0000-0000-0000-000000000000", true},
		{"${node.unique.name}", "=", "web-1", true}, {"${node.datacenter}", "=", "eu-west-1", true},
		{"${node.class}", "=", "big", true}, {"${node.pool}", "=", "blue", true},
	} {
		m, err := Compile(jobs.Constraint{Left: test.left, Operand: test.operand, Right: test.right})
		if err != nil {
			t.Error(err)
		} else if got := m.Meets(testNode()); got != test.want {
			t.Errorf("%s %s %s: %v", test.left, test.operand, test.right, got)
		}
	}
	for _, bad := range []jobs.Constraint{{Operand: "near"}, {Operand: "regexp", Right: "("},
		{Operand: "version", Right: "newest"}, {Operand: "semver", Right: "~> 1.2"}} {
		if _, err := Compile(bad); err == nil {
			t.Errorf("%v compiles", bad)
		}
	}
}

// TestNS8: unique keys, names and ids do not part classes; everything else that matters does.
func TestNS8(t *testing.T) {
	class := ClassOf(testNode())
	for name, same := range map[string]func(*jobs.Node){
		"id":          func(n *jobs.Node) { n.ID, n.Name = jobs.ID{9}, "web-2" },
		"unique":      func(n *jobs.Node) { n.Attributes["unique.hostname"] = "web-2" },
		"duty":        func(n *jobs.Node) { n.Duty.Ineligible = true },
		"indifferent": func(n *jobs.Node) { n.ModifyIndex++ },
	} {
		n := testNode()
		same(n)
		if ClassOf(n) != class {
			t.Errorf("%s parts classes", name)
		}
	}
	for name, other := range map[string]func(*jobs.Node){
		"datacenter": func(n *jobs.Node) { n.Datacenter = "x" }, "pool": func(n *jobs.Node) { n.Pool = "" },
		"class": func(n *jobs.Node) { n.Class = "" }, "meta": func(n *jobs.Node) { n.Meta["rack"] = "r8" },
		"attribute": func(n *jobs.Node) { n.Attributes["x"] = "" },
		"moved":     func(n *jobs.Node) { n.Meta["kernel.name"] = "linux"; delete(n.Attributes, "kernel.name") },
		"memory":    func(n *jobs.Node) { n.Capacity.Total.MemoryMB = 1 },
		"driver":    func(n *jobs.Node) { n.Drivers = map[string]jobs.Driver{"exec": {Detected: true, Healthy: true}} },
		"volume":    func(n *jobs.Node) { n.HostVolumes = map[string]jobs.HostVolume{"v": {}} },
	} {
		n := testNode()
		other(n)
		if ClassOf(n) == class {
			t.Errorf("%s does not part classes", name)
		}
	}
}

func TestDatacentersAndPools(t *testing.T) {
	for _, test := range []struct {
		globs []string
		pool  string
		want  bool
	}{
		{nil, "blue", true}, {[]string{"*"}, "blue", true}, {[]string{"eu-*"}, "all", true},
		{[]string{"us-*"}, "blue", false},
		{[]string{"us-*", "eu-west-?"}, "blue", true}, {nil, "", false}, {nil, "default", false},
	} {
		j := &jobs.Job{Datacenters: test.globs, NodePool: test.pool}
		p, err := New(j, &jobs.TaskGroup{}, jobs.Config{})
		if err != nil || p.Reach(testNode()) != test.want {
			t.Error(test, err)
		}
	}
}

// TestNS12Class: drivers, volumes, network modes, devices and cores decide by class.
func TestNS12Class(t *testing.T) {
	n := testNode()
	n.Drivers = map[string]jobs.Driver{"docker": {Detected: true, Healthy: true}, "java": {Detected: true}}
	n.HostVolumes = map[string]jobs.HostVolume{"certs": {ReadOnly: true}}
	n.Capacity = jobs.Capacity{Total: jobs.Vector{CPU: 8000, MemoryMB: 1000, DiskMB: 1000}, TotalCores: 4,
		Cores: []uint16{2, 3}, Modes: []string{"bridge"}, Devices: []jobs.DeviceGroup{{Vendor: "acme", Type: "gpu",
			Name: "x1", Attributes: map[string]string{"memory": "16"}, Instances: []string{"a", "b"}}}}
	volume := []jobs.VolumeRequest{{Type: "host", Source: "certs"}}
	for want, group := range map[string]*jobs.TaskGroup{
		"": {Tasks: []*jobs.Task{{Driver: "docker"}},
			Networks: []jobs.Network{{Mode: "bridge"}}},
		"missing drivers":                 {Tasks: []*jobs.Task{{Driver: "java"}}},
		"missing network":                 {Networks: []jobs.Network{{Mode: "cni/x"}}},
		"missing compatible host volumes": {Volumes: volume},
		"missing cores":                   {Tasks: []*jobs.Task{{Driver: "docker", Resources: jobs.Resources{Cores: 3}}}},
		"missing devices": {Tasks: []*jobs.Task{{Driver: "docker", Resources: jobs.Resources{
			Devices: []jobs.DeviceRequest{{Name: "acme/gpu", Count: 3}}}}}},
	} {
		p, err := New(&jobs.Job{}, group, jobs.Config{})
		if err != nil || p.Class(n) != want {
			t.Errorf("%q: %q, %v", want, p.Class(n), err)
		}
	}
	ask := NewAsk(&jobs.TaskGroup{Tasks: []*jobs.Task{{Name: "t", Resources: jobs.Resources{Cores: 1, MemoryMB: 10,
		Devices: []jobs.DeviceRequest{{Name: "gpu", Count: 1, Constraints: []jobs.Constraint{
			{Left: "${device.attr.memory}", Operand: ">=", Right: "8"}}}}}}}}, false)
	room := NewRoom(n)
	for i := range 3 {
		grant, lacks := ask.Assign(n, &room, jobs.NewDice(1, 1))
		if i == 2 {
			if lacks == "" {
				t.Error("a third of two cores")
			}
			break
		}
		if lacks != "" || grant.CPU != 2000 || len(grant.Cores[0].Cores) != 1 || len(grant.Devices[0].Instances) != 1 {
			t.Fatal(lacks, grant)
		}
		room.Take(grant)
	}
	if len(room.Cores) != 2 || len(room.Devices) != 2 {
		t.Error(room)
	}
}

// TestRoomGivesBack: what was taken can be given back in any order, and copies made before stay.
func TestRoomGivesBack(t *testing.T) {
	n := testNode()
	n.Capacity = jobs.Capacity{Total: jobs.Vector{CPU: 8000}, ReservedPorts: []int{22}}
	room := NewRoom(n)
	before := room
	a := &jobs.Grant{Vector: jobs.Vector{CPU: 10}, Ports: []jobs.PortGrant{{Value: 80}, {Value: 443}}}
	b := &jobs.Grant{Vector: jobs.Vector{CPU: 20}, Ports: []jobs.PortGrant{{Value: 80}}}
	room.Take(a)
	room.Take(b)
	room.Give(a)
	if room.Lacks(n, b) != dimPort {
		t.Error("the port of b is free")
	}
	room.Give(b)
	if room.Free != before.Free || len(room.Ports) != 1 || len(before.Ports) != 1 || room.Allocs != 0 {
		t.Error(room, before)
	}
	if room.Lacks(n, &jobs.Grant{Ports: []jobs.PortGrant{{Value: 22}}}) != dimPort {
		t.Error("a reserved port is free")
	}
}

// FuzzConstraint: what users write never panics, and what compiles answers twice alike.
func FuzzConstraint(f *testing.F) {
	for _, operand := range []string{"=", "<", "regexp", "version", "semver", "set_contains"} {
		f.Add("${attr.kernel.version}", operand, ">= 1.2, < 3")
		f.Add("1.2.3-beta+4", operand, "~> 1.0")
	}
	f.Fuzz(func(t *testing.T, left, operand, right string) {
		m, err := Compile(jobs.Constraint{Left: left, Operand: operand, Right: right})
		if err != nil {
			return
		}
		n := testNode()
		if first := m.Meets(n); m.Meets(n) != first {
			t.Error("two answers")
		}
	})
}
