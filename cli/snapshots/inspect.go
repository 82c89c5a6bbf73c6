package snapshots

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/migrate/snapfile"
	"corbel.dev/corbel/kit/archive"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
)

// report is what inspect finds.
type report struct {
	Meta      *archive.Meta
	Stats     []catalogplane.Tally
	StatsKV   []catalogplane.Tally `json:",omitempty"`
	TotalSize int
	keysSize  int
}

// keyGroups counts keys by the first parts of their path.
type keyGroups struct {
	depth  int
	filter string
	found  map[string]*catalogplane.Tally
}

func (g *keyGroups) add(key string, size int) {
	if !strings.HasPrefix(key, g.filter) {
		return
	}
	parts := strings.Split(key, "/")
	name := strings.Join(parts[:min(len(parts), g.depth)], "/")
	t := g.found[name]
	if t == nil {
		t = &catalogplane.Tally{Name: name}
		g.found[name] = t
	}
	t.Count++
	t.Size += size
}

// read checks the archive to its last byte, and then takes its state apart.
func read(path string, groups *keyGroups) (*report, error) {
	state, err := os.CreateTemp("", "corbel-inspect-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = state.Close()
		_ = os.Remove(state.Name()) // a spool: of no use to anybody
	}()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &report{}
	if r.Meta, err = archive.Read(f, state, maxStateBytes); err != nil {
		return nil, err
	}
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var key func(string, int)
	if groups != nil {
		key = groups.add
	}
	if snapfile.IsConsul(state) {
		err = r.consul(state, key)
	} else if _, err = state.Seek(0, io.SeekStart); err == nil {
		r.Stats, err = catalogplane.InspectSnapshot(state, key)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range r.Stats {
		r.TotalSize += t.Size
	}
	if groups != nil {
		for _, t := range groups.found {
			r.StatsKV = append(r.StatsKV, *t)
			r.keysSize += t.Size
		}
		slices.SortFunc(r.StatsKV, func(a, b catalogplane.Tally) int {
			return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.Name, b.Name))
		})
	}
	return r, nil
}

// consul counts what is in a state that Consul's servers saved.
func (r *report) consul(state io.ReadSeeker, key func(string, int)) error {
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s, err := snapfile.Parse(state)
	if err != nil {
		return err
	}
	for _, t := range s.Types() {
		r.Stats = append(r.Stats, catalogplane.Tally(t))
	}
	if key != nil {
		s.Keys(key)
	}
	return nil
}

func inspect(e *command.Env) *cobra.Command {
	var reading command.Reading
	var details bool
	groups := keyGroups{found: map[string]*catalogplane.Tally{}}
	c := &cobra.Command{Use: "inspect FILE", Short: "Verify a snapshot file and show its contents",
		Args: command.Between(1, 1, "the name of a file")}
	f := c.Flags()
	f.BoolVar(&reading.JSON, "json", false, "print JSON")
	reading.FormatFlag(c)
	f.BoolVar(&details, "kvdetails", false, "also count keys by path prefix")
	f.IntVar(&groups.depth, "kvdepth", 2, "with kvdetails: how many path segments form a group")
	f.StringVar(&groups.filter, "kvfilter", "", "with kvdetails: only keys with this prefix")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := reading.CheckFormat(); err != nil {
			return err
		}
		if groups.depth < 1 {
			return command.AsUsage(errors.New("kvdepth must be at least 1"))
		}
		var by *keyGroups
		if details {
			by = &groups
		}
		r, err := read(args[0], by)
		if err != nil {
			return fmt.Errorf("%s does not verify: %w", args[0], err)
		}
		if e.Consul {
			r.asRegistrations()
		}
		if reading.JSON {
			return command.WriteJSON(e.Out, r, false)
		}
		return r.print(e, details)
	}
	return c
}

// asRegistrations makes one row of nodes, services and checks: Consul's servers store each as a registration.
func (r *report) asRegistrations() {
	all := catalogplane.Tally{Name: "Register"}
	r.Stats = slices.DeleteFunc(r.Stats, func(t catalogplane.Tally) bool {
		if t.Name != "Node" && t.Name != "Service" && t.Name != "Check" {
			return false
		}
		all.Count, all.Size = all.Count+t.Count, all.Size+t.Size
		return true
	})
	if all.Count == 0 {
		return
	}
	r.Stats = append(r.Stats, all)
	slices.SortStableFunc(r.Stats, func(a, b catalogplane.Tally) int { return cmp.Compare(b.Size, a.Size) })
}

func (r *report) print(e *command.Env, details bool) error {
	t := command.Table{Gap: 11}
	t.Add(" ID", r.Meta.ID)
	t.Add(" Size", strconv.FormatInt(r.Meta.Size, 10))
	t.Add(" Index", strconv.FormatUint(r.Meta.Index, 10))
	t.Add(" Term", strconv.FormatUint(r.Meta.Term, 10))
	t.Add(" Version", strconv.Itoa(r.Meta.Version))
	if err := t.Write(e.Out); err != nil {
		return err
	}
	if err := tallies(e, " Type", r.Stats, r.TotalSize); err != nil || !details {
		return err
	}
	return tallies(e, " Key Name", r.StatsKV, r.keysSize)
}

func tallies(e *command.Env, title string, list []catalogplane.Tally, total int) error {
	t := command.Table{Gap: 11}
	t.Add(title, "Count", "Size")
	t.Add(" ----", "----", "----")
	for _, item := range list {
		t.Add(" "+item.Name, strconv.Itoa(item.Count), bytesText(item.Size))
	}
	t.Add(" ----", "----", "----")
	t.Add(" Total", "", bytesText(total))
	e.Say("\n")
	return t.Write(e.Out)
}

// bytesText is a size as people read it: 512B, 1.5KB.
func bytesText(n int) string {
	size, unit := float64(n), 0
	for size >= 1024 && unit < 4 {
		size, unit = size/1024, unit+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(size, 'f', 1, 64), ".0") + []string{"B", "KB", "MB", "GB", "TB"}[unit]
}
