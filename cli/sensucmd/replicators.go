package sensucmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// replicatorPath is where replicators are, as objects.
const replicatorPath = "enterprise/federation/v1/etcd-replicators"

// replicator is what came of a replicator as far as it is printed.
type replicator struct {
	Name, URL, Resource, Namespace, Error string
	Objects                               int
	Written, Deleted, Refused             uint64
	LastSuccess                           int64 `json:"last_success"`
}

// Replicators builds `replicators`.
func Replicators(e *command.Env, c *cobra.Command) {
	command.Group(c,
		act(e, "list", "List what is copied from other clusters, and how that goes", command.Between(0, 0, "flags only"),
			reading, listReplicators),
		act(e, "delete NAME", "Delete a replicator; what it copied stays", command.Between(1, 1, "NAME"), nil,
			func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
				if _, _, err := cl.Do(ctx, "DELETE", sensu.ObjectPath(replicatorPath, false, "", args[0]), nil, nil); err != nil {
					return absent(err, "replicators", args)
				}
				return d.env.Printf("Deleted %s\n", args[0])
			}),
	)
}

func listReplicators(ctx context.Context, d *dial, cl *sensu.Client, _ []string) error {
	var raw []json.RawMessage
	if err := cl.Get(ctx, "/api/corbel/v1/replicators", &raw); err != nil {
		return err
	}
	if d.json {
		return command.WriteJSON(d.env.Out, raw, false)
	}
	t := command.Table{Head: []string{"Name", "Source", "Resource", "Namespace", "Objects", "Written", "Deleted",
		"Last success", "Error"}}
	for _, one := range raw {
		var r replicator
		if err := json.Unmarshal(one, &r); err != nil {
			return fmt.Errorf("the monitor's answer: %w", err)
		}
		if r.Namespace == "" {
			r.Namespace = "*"
		}
		t.Add(r.Name, r.URL, r.Resource, r.Namespace, strconv.Itoa(r.Objects), strconv.FormatUint(r.Written, 10),
			strconv.FormatUint(r.Deleted, 10), at(r.LastSuccess), strings.TrimSpace(line(r.Error)))
	}
	return t.Write(d.env.Out)
}
