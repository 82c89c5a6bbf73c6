package catalogplane

import (
	"bytes"
	"crypto/sha256"
	"io"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group/snapshot"
)

// Tally is how many objects of one sort there are, and their bytes as they are stored.
type Tally struct {
	Name        string
	Count, Size int
}

func (t *Tally) add(encoded []byte) {
	t.Count++
	t.Size += len(encoded)
}

// recordNames are the sorts of small objects as Consul's tool calls them.
var recordNames = map[catalog.RecordKind]string{
	catalog.RecordACLToken: "ACLToken", catalog.RecordACLPolicy: "ACLPolicy", catalog.RecordACLRole: "ACLRole",
	catalog.RecordACLAuthMethod: "ACLAuthMethod", catalog.RecordACLBindingRule: "ACLBindingRule",
	catalog.RecordACLBootstrap: "ACLBootstrap",
	catalog.RecordConfigEntry:  "ConfigEntry", catalog.RecordQuery: "PreparedQuery",
	catalog.RecordAutopilot:  "AutopilotRequest",
	catalog.RecordCoordinate: "CoordinateBatchUpdate", catalog.RecordCA: "ConnectCA",
	catalog.RecordLegacyID: "LegacyIntentionID",
	catalog.RecordSystem:   "SystemMetadata", catalog.RecordFederation: "FederationState",
	catalog.RecordNodeBar: "NodeBar", catalog.RecordOneTime: "ACLOneTimeToken",
	catalog.RecordVirtualIP: "ServiceVirtualIP", catalog.RecordPeering: "Peering",
	catalog.RecordImported: "PeeringImportedService", catalog.RecordTrust: "PeeringTrustBundle",
}

// InspectSnapshot reads the state of a snapshot archive to its end and counts what is in it, the largest first.
// key, when set, is called with each key and the bytes of its pair, in the order of the keys.
func InspectSnapshot(in io.Reader, key func(key string, size int)) (all []Tally, err error) {
	var st *statestore.State
	err = snapshot.Read(in, func(r io.Reader) (err error) {
		st, err = statestore.ReadState(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	nodes, services, checks, keys, sessions := Tally{Name: "Node"}, Tally{Name: "Service"}, Tally{Name: "Check"},
		Tally{Name: "KVS"}, Tally{Name: "Session"}
	var buf []byte
	for n := range st.Nodes() {
		buf = catalog.AppendNode(buf[:0], n)
		nodes.add(buf)
		for s := range st.ServicesOfNode(n.Name) {
			buf = catalog.AppendService(buf[:0], s)
			services.add(buf)
		}
	}
	for c := range st.Checks() {
		buf = catalog.AppendCheck(buf[:0], c)
		checks.add(buf)
	}
	for p := range st.KVPrefix("") {
		buf = catalog.AppendKVPair(buf[:0], p)
		keys.add(buf)
		if key != nil {
			key(p.Key, len(buf))
		}
	}
	for s := range st.Sessions() {
		buf = catalog.AppendSession(buf[:0], s)
		sessions.add(buf)
	}
	all = append(all, nodes, services, checks, keys, sessions)
	for kind, name := range recordNames {
		t := Tally{Name: name}
		for r := range st.Records(kind, "") {
			buf = catalog.AppendRecord(buf[:0], r)
			t.add(buf)
		}
		all = append(all, t)
	}
	all = slices.DeleteFunc(all, func(t Tally) bool { return t.Count == 0 })
	slices.SortFunc(all, func(a, b Tally) int {
		if a.Size != b.Size {
			return b.Size - a.Size
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

// KeepsSnapshot reads the state of a snapshot archive to its end, and reports whether this release writes it the same
// again, byte by byte: then it knows all that is in it. An error says what it cannot read.
func KeepsSnapshot(in io.Reader) (same bool, err error) {
	read, written := sha256.New(), sha256.New()
	err = snapshot.Read(in, func(r io.Reader) error {
		st, err := statestore.ReadState(io.TeeReader(r, read))
		if err != nil {
			return err
		}
		if _, err := io.Copy(read, r); err != nil { // what stands behind what is known
			return err
		}
		_, err = st.WriteTo(written)
		return err
	})
	return bytes.Equal(read.Sum(nil), written.Sum(nil)), err
}
