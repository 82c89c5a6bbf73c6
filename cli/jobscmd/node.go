package jobscmd

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// Node builds `nomad node` and `corbel jobs nodes`.
func Node(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, nodeStatus(e), nodeDrain(e), nodeEligibility(e), nodeMeta(e),
		command.Named("pool", "Manage node pools", poolCommands(e)...))
}

// node finds the node that is meant, by its id or its name; self is that of the server that answers.
func (c *Call) node(prefix string, self bool) (string, error) {
	if self {
		var own struct {
			Stats map[string]map[string]string `json:"stats"`
		}
		if err := c.Get("agent/self", nil, &own); err != nil {
			return "", err
		}
		if id := own.Stats["client"]["node_id"]; id != "" {
			return id, nil
		}
		return "", fmt.Errorf("the process that answers runs no allocations: name a node")
	}
	var all []found
	if err := c.Get("nodes", nil, &all); err != nil {
		return "", err
	}
	for _, n := range all {
		if n.Name == prefix {
			return n.ID, nil
		}
	}
	return c.only("node", prefix, all)
}

// nodeStatus builds `node status`.
func nodeStatus(e *command.Env) *cobra.Command {
	return Leaf(e, "status [NODE]", "List the nodes, or show one", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			self := f.Bool("self", false, "the node of the process that answers")
			allocs := f.Bool("allocs", false, "count the allocations of each")
			f.Bool("short", false, "")
			f.Bool("stats", false, "")
			_, _ = f.MarkHidden("short"), f.MarkHidden("stats") // kept for scripts
			return func(c *Call, args []string) error {
				if len(args) == 0 && !*self {
					return nodeList(c, *allocs)
				}
				id, err := c.node(strings.Join(args, ""), *self)
				if err != nil {
					return err
				}
				if done, err := c.Show("node/"+id, nil); done {
					return err
				}
				return c.nodeDetail(id)
			}
		})
}

func nodeList(c *Call, allocs bool) error {
	if done, err := c.Show("nodes", nil); done {
		return err
	}
	var list []*jobwire.NodeStub
	if err := c.Get("nodes", nil, &list); err != nil {
		return err
	}
	head, rows := []string{"ID", "Node Pool", "DC", "Name", "Class", "Drain", "Eligibility", "Status"}, [][]string{}
	if allocs {
		head = append(head, "Running Allocs")
	}
	for _, n := range list {
		row := []string{c.short(n.ID), n.NodePool, n.Datacenter, n.Name, jobview.Or(n.NodeClass, "<none>"),
			strconv.FormatBool(n.Drain), n.SchedulingEligibility, n.Status}
		if allocs {
			running, err := runningOn(c, n.ID)
			if err != nil {
				return err
			}
			row = append(row, strconv.Itoa(len(running)))
		}
		rows = append(rows, row)
	}
	return c.Table(head, rows, "No nodes")
}

// running are the allocations of a node that are not over.
func runningOn(c *Call, node string) (list []*jobwire.Allocation, err error) {
	var all []*jobwire.Allocation
	if err := c.Get("node/"+node+"/allocations", nil, &all); err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.ClientStatus == "running" || a.ClientStatus == "pending" && a.DesiredStatus == "run" {
			list = append(list, a)
		}
	}
	return list, nil
}

func (c *Call) nodeDetail(id string) error {
	var n jobwire.Node
	if err := c.Get("node/"+id, nil, &n); err != nil {
		return err
	}
	drivers := []string{}
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		switch d := n.Drivers[name]; {
		case d.Healthy:
			drivers = append(drivers, name)
		case d.Detected:
			drivers = append(drivers, name+" (unhealthy)")
		}
	}
	c.Fields("ID", n.ID, "Name", n.Name, "Node Pool", n.NodePool, "Class", jobview.Or(n.NodeClass, "<none>"),
		"DC", n.Datacenter, "Drain", strconv.FormatBool(n.Drain), "Eligibility", n.SchedulingEligibility,
		"Status", n.Status, "Drivers", strings.Join(drivers, ","), "Address", jobview.Or(n.HTTPAddr, "<none>"))
	if err := nodeResources(c, &n); err != nil {
		return err
	}
	if len(n.Events) > 0 {
		rows := [][]string{}
		for _, event := range slices.Backward(n.Events) {
			rows = append(rows, []string{jobview.Moment(event.Timestamp), event.Subsystem, event.Message})
		}
		c.Say("\nNode Events\n")
		if err := c.Table([]string{"Time", "Subsystem", "Message"}, rows, ""); err != nil {
			return err
		}
	}
	c.Say("\nAllocations\n")
	if err := nodeAllocs(c, id); err != nil {
		return err
	}
	if !c.Verbose {
		return nil
	}
	c.Say("\nAttributes\n")
	pairs := []string{}
	for _, name := range slices.Sorted(maps.Keys(n.Attributes)) {
		pairs = append(pairs, name, n.Attributes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(n.Meta)) {
		pairs = append(pairs, "meta."+name, n.Meta[name])
	}
	c.Fields(pairs...)
	return nil
}

// nodeAllocs lists the allocations of a node. The API sends them whole.
func nodeAllocs(c *Call, id string) error {
	var all []*jobwire.Allocation
	if err := c.Get("node/"+id+"/allocations", nil, &all); err != nil {
		return err
	}
	list := make([]*jobwire.AllocStub, len(all))
	for i, a := range all {
		list[i] = &jobwire.AllocStub{AllocHead: a.AllocHead, AllocDesire: a.AllocDesire, AllocClient: a.AllocClient,
			Stamp: jobwire.Stamp{CreateIndex: a.CreateIndex, CreateTime: a.CreateTime, ModifyTime: a.ModifyTime}}
		if a.Job != nil {
			list[i].JobVersion = jobwire.Get(a.Job.Version)
		}
	}
	return c.allocRows(list, "No allocations placed")
}

// nodeResources shows what of a node is allocated.
func nodeResources(c *Call, n *jobwire.Node) error {
	if n.NodeResources == nil {
		return nil
	}
	list, err := runningOn(c, n.ID)
	if err != nil {
		return err
	}
	var cpu, memory, disk int64
	for _, a := range list {
		if a.AllocatedResources == nil {
			continue
		}
		disk += a.AllocatedResources.Shared.DiskMB
		for _, t := range a.AllocatedResources.Tasks {
			cpu, memory = cpu+t.Cpu.CpuShares, memory+t.Memory.MemoryMB
		}
	}
	r := n.NodeResources
	c.Say("\nAllocated Resources\n")
	return c.Table([]string{"CPU", "Memory", "Disk"}, [][]string{{fmt.Sprintf("%d/%d MHz", cpu, r.Cpu.CpuShares),
		fmt.Sprintf("%d/%d MiB", memory, r.Memory.MemoryMB), fmt.Sprintf("%d/%d MiB", disk, r.Disk.DiskMB)}}, "")
}

// nodeDrain builds `node drain`.
func nodeDrain(e *command.Env) *cobra.Command {
	return Leaf(e, "drain [NODE]", "Empty a node, or end its drain", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			enable := f.Bool("enable", false, "begin to empty it")
			disable := f.Bool("disable", false, "end the drain")
			deadline := f.Duration("deadline", time.Hour, "stop what is left after this time")
			force := f.Bool("force", false, "stop everything at once")
			none := f.Bool("no-deadline", false, "wait as long as it takes")
			system := f.Bool("ignore-system", false, "leave allocations of system jobs")
			keep := f.Bool("keep-ineligible", false, "with -disable: take no new work")
			self := f.Bool("self", false, "the node of the process that answers")
			detach := f.Bool("detach", false, "do not wait until it is empty")
			monitor := f.Bool("monitor", false, "only wait for a drain that goes on")
			message := f.StringP("m", "m", "", "why, for those who look at the node")
			f.BoolP("yes", "y", false, "")
			_ = f.MarkHidden("yes") // kept for scripts
			return func(c *Call, args []string) error {
				if *enable == *disable && !*monitor {
					return command.Usagef("node drain needs one of -enable and -disable")
				}
				id, err := c.node(strings.Join(args, ""), *self)
				if err != nil {
					return err
				}
				if *monitor {
					return monitorDrain(c, id)
				}
				body := map[string]any{"NodeID": id, "MarkEligible": *disable && !*keep}
				if *message != "" {
					body["Meta"] = map[string]string{"message": *message}
				}
				if *enable {
					span := *deadline
					switch {
					case *force:
						span = -1
					case *none:
						span = 0
					}
					body["DrainSpec"] = map[string]any{"Deadline": span, "IgnoreSystemJobs": *system}
				}
				if err := c.Client.Put(c.Ctx(), "node/"+id+"/drain", nil, body, nil); err != nil {
					return err
				}
				if *disable {
					return c.Printf("Node %q drain strategy unset\n", id)
				}
				if err := c.Printf("Node %q drain strategy set\n", id); err != nil || *detach {
					return err
				}
				return monitorDrain(c, id)
			}
		})
}

// monitorDrain waits until a node has no drain any more, or nothing that it would stop.
func monitorDrain(c *Call, id string) error {
	if err := c.said(true, "Monitoring node %q", c.short(id)); err != nil {
		return err
	}
	left := -1
	for {
		var n jobwire.Node
		if err := c.Get("node/"+id, nil, &n); err != nil {
			return err
		}
		list, err := runningOn(c, id)
		if err != nil {
			return err
		}
		if len(list) != left {
			left = len(list)
			if err := c.said(false, "%d allocations are left", left); err != nil {
				return err
			}
		}
		if n.DrainStrategy == nil {
			return c.said(true, "Node %q drain complete", c.short(id))
		}
		command.Wait(c.Ctx(), time.Second)
		if err := c.Ctx().Err(); err != nil {
			return err
		}
	}
}

// nodeEligibility builds `node eligibility`.
func nodeEligibility(e *command.Env) *cobra.Command {
	return Leaf(e, "eligibility [NODE]", "Have a node take new work, or none", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			enable := f.Bool("enable", false, "take new work")
			disable := f.Bool("disable", false, "take none")
			self := f.Bool("self", false, "the node of the process that answers")
			return func(c *Call, args []string) error {
				if *enable == *disable {
					return command.Usagef("node eligibility needs one of -enable and -disable")
				}
				id, err := c.node(strings.Join(args, ""), *self)
				if err != nil {
					return err
				}
				word := map[bool]string{true: "eligible", false: "ineligible"}[*enable]
				if err := c.Client.Put(c.Ctx(), "node/"+id+"/eligibility", nil, map[string]string{"NodeID": id,
					"Eligibility": word}, nil); err != nil {
					return err
				}
				return c.Printf("Node %q scheduling eligibility set: %s\n", id, word+" for scheduling")
			}
		})
}

// pool is a node pool as it is printed.
type pool struct{ Name, Description string }

// Pools builds `corbel pools`; they are `nomad node pool` too.
func Pools(e *command.Env, cmd *cobra.Command) { command.Group(cmd, poolCommands(e)...) }

func poolCommands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{
		Plain(e, "list", "List the node pools", 0, 0, func(c *Call, _ []string) error {
			if done, err := c.Show("node/pools", nil); done {
				return err
			}
			var list []pool
			if err := c.Get("node/pools", nil, &list); err != nil {
				return err
			}
			rows := [][]string{}
			for _, p := range list {
				rows = append(rows, []string{p.Name, jobview.Or(p.Description, "<none>")})
			}
			return c.Table([]string{"Name", "Description"}, rows, "No node pools")
		}),
		Plain(e, "info POOL", "Show a node pool", 1, 1, func(c *Call, args []string) error {
			path := "node/pool/" + url.PathEscape(args[0])
			if done, err := c.Show(path, nil); done {
				return err
			}
			var p struct {
				pool
				Meta                   map[string]string
				SchedulerConfiguration *struct{ SchedulerAlgorithm string }
			}
			if err := c.Get(path, nil, &p); err != nil {
				return err
			}
			algorithm := "<the cluster's>"
			if p.SchedulerConfiguration != nil {
				algorithm = jobview.Or(p.SchedulerConfiguration.SchedulerAlgorithm, algorithm)
			}
			c.Fields("Name", p.Name, "Description", jobview.Or(p.Description, "<none>"), "Metadata",
				jobview.Or(command.AllPairs(p.Meta), "<none>"), "Scheduler Algorithm", algorithm)
			return nil
		}),
		Leaf(e, "apply FILE", "Create or change a node pool from JSON; - is stdin", 1, 1, applyPool),
		Plain(e, "delete POOL", "Delete a node pool", 1, 1, func(c *Call, args []string) error {
			if _, err := c.Client.Do(c.Ctx(), "DELETE", "node/pool/"+url.PathEscape(args[0]), nil, nil, nil); err != nil {
				return err
			}
			return c.Printf("Successfully deleted node pool %q!\n", args[0])
		}),
		Plain(e, "nodes POOL", "List the nodes of a pool", 1, 1, func(c *Call, args []string) error {
			path := "node/pool/" + url.PathEscape(args[0]) + "/nodes"
			if done, err := c.Show(path, nil); done {
				return err
			}
			var list []*jobwire.NodeStub
			if err := c.Get(path, nil, &list); err != nil {
				return err
			}
			rows := [][]string{}
			for _, n := range list {
				rows = append(rows, []string{c.short(n.ID), n.Name, n.Datacenter, n.SchedulingEligibility, n.Status})
			}
			return c.Table([]string{"ID", "Name", "DC", "Eligibility", "Status"}, rows, "No nodes")
		}),
	}
}

func applyPool(cmd *cobra.Command) func(*Call, []string) error {
	f := cmd.Flags()
	description := f.String("description", "", "instead of a file: what a pool of the name FILE is for")
	algorithm := f.String("scheduler-algorithm", "", "instead of a file: binpack or spread")
	return func(c *Call, args []string) error {
		body := map[string]any{}
		if *description != "" || *algorithm != "" {
			body["Name"], body["Description"] = args[0], *description
			if *algorithm != "" {
				body["SchedulerConfiguration"] = map[string]string{"SchedulerAlgorithm": *algorithm}
			}
		} else {
			text, err := c.FileOrStdin(args[0])
			if err != nil {
				return fmt.Errorf("read the node pool: %w; or give -description to make one by its name", err)
			}
			if err := command.Decode(text, &body); err != nil {
				return err
			}
		}
		if err := c.Client.Put(c.Ctx(), "node/pools", nil, body, nil); err != nil {
			return err
		}
		return c.Printf("Successfully applied node pool %q!\n", body["Name"])
	}
}
