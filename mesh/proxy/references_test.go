package proxy

import (
	"encoding/json"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/mesh"
)

type reference struct {
	kind mesh.Type
	name string
}

// by version: decoding is slow; the tests of this package run one after another
var seenReferences = map[string][]reference{}

// references are what a resource needs to be there.
func references(r *mesh.Resource) []reference {
	if list, ok := seenReferences[r.Version]; ok {
		return list
	}
	var wrapped anypb.Any
	if proto.Unmarshal(r.Any, &wrapped) != nil {
		panic("a resource that cannot be read")
	}
	m, err := wrapped.UnmarshalNew()
	if err != nil {
		panic(err)
	}
	var list []reference
	if c, ok := m.(*clusterv3.Cluster); ok && c.GetType() == clusterv3.Cluster_EDS {
		name := c.EdsClusterConfig.ServiceName
		if name == "" {
			name = c.Name
		}
		list = append(list, reference{mesh.TypeEndpoints, name})
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		panic(err)
	}
	list = append(list, within(v)...)
	seenReferences[r.Version] = list
	return list
}

// within finds references at any depth.
func within(v any) []reference {
	var list []reference
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			list = append(list, within(one)...)
		}
	case map[string]any:
		if name, ok := v["cluster"].(string); ok {
			list = append(list, reference{mesh.TypeCluster, name})
		}
		if weighted, ok := v["weighted_clusters"].(map[string]any); ok {
			for _, c := range weighted["clusters"].([]any) {
				list = append(list, reference{mesh.TypeCluster, c.(map[string]any)["name"].(string)})
			}
		}
		if legs, ok := v["clusters"].([]any); ok { // of an aggregate
			for _, leg := range legs {
				if name, ok := leg.(string); ok {
					list = append(list, reference{mesh.TypeCluster, name})
				}
			}
		}
		if rds, ok := v["rds"].(map[string]any); ok {
			list = append(list, reference{mesh.TypeRoute, rds["route_config_name"].(string)})
		}
		if _, ok := v["config_discovery"]; ok {
			list = append(list, reference{mesh.TypeExtension, v["name"].(string)})
		}
		if _, ok := v["sds_config"]; ok {
			list = append(list, reference{mesh.TypeSecret, v["name"].(string)})
		}
		for _, one := range v {
			list = append(list, within(one)...)
		}
	}
	return list
}
