package node

import (
	"fmt"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// TestHostsRunChecksNatively: a server and a client agent, which finds it by gossip, run a check as entities of their
// nodes' names.
func TestHostsRunChecksNatively(t *testing.T) {
	const on = "monitor { agent { enabled = true, subscriptions = [\"linux\"], labels { role = \"db\" } } }\n"
	s := startServer(t, "mon-s", monitorOn+on+"bootstrap = true")
	startMember(t, false, "mon-c", aclOff+on+fmt.Sprintf("retry_join = [%q]\n", s.gossip))
	c := &monitor.CheckConfig{Meta: monitor.Meta{Name: "where", Namespace: "default"},
		Command: "echo {{ .name }} {{ .labels.role }}; exit 1", Interval: 1, Publish: true, Subscriptions: []string{"linux"}}
	polltest.NoError(t, polltest.Deadline, func() error {
		return s.monitor().Group.Resources.Write(t.Context(), objects.Op{Verb: objects.Put, Type: "checks",
			Namespace: "default", Name: c.Name, Encoded: tagproto.Append(nil, c)})
	}, "a check")
	for _, name := range []string{"mon-s", "mon-c"} {
		polltest.Until(t, func() bool {
			e, err := s.monitor().Events.Ingest.Get("default", name, "where")
			return err == nil && e.Check.Status == 1 && e.Check.Output == name+" db\n" && e.Check.ProcessedBy == name
		}, "the result of %s", name)
		if s.monitor().Group.Resources.View().Get("entities", "default", name) == nil {
			t.Errorf("%s is no entity", name)
		}
	}
}
