// Command deep runs the fault scenarios for as long as it is given and adds what
// it did to the totals in docs/reliability.md.
//
//	go run ./test/fault/deep [--budget 20m] [--only linear,crash,...] [--steps emptied,...] [--lanes 3]
//	                          [--servers 5] [--seeds FILE] [--docs FILE] [--keep DIR]
//
// Rows that measure latencies run first, alone; then the others share the rest of the
// budget, several clusters side by side. Seeds are counted in a file, so that each run goes
// on where the last one stopped; commit it with the page. A seed is begun only when it should end in time; a seed
// that failed is printed and its histories are kept, and --seed repeats it. The exit code is 1 when a promise was
// broken.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"corbel.dev/corbel/test/fault/monitorruns"

	faultrun "corbel.dev/corbel/test/fault"
)

func main() {
	budget := flag.Duration("budget", 20*time.Minute, "how long to run")
	only := flag.String("only", "", "run these rows alone, separated by commas: "+strings.Join(names(), " "))
	seeds := flag.String("seeds", defaultSeeds, "file that counts seeds and totals")
	docs := flag.String("docs", "docs/reliability.md", "page whose totals are replaced; empty for none")
	keep := flag.String("keep", ".cache/fault-kept", "folder for histories and pictures of failed seeds")
	seed := flag.Uint64("seed", 0, "repeat this seed once, and count nothing")
	lanes := flag.Int("lanes", 3, "how many clusters run side by side; rows that measure latencies run alone")
	servers := flag.Int("servers", 3, "how many servers clusters have that have three else: 3 or 5")
	steps := flag.String("steps", "", "of the monitor plane's faults these alone, in this order, some of them often, "+
		"separated by commas: "+strings.Join(monitorruns.FaultSteps, ","))
	flag.Parse()
	if *steps != "" {
		if *seed == 0 {
			fmt.Fprintln(os.Stderr, "deep: --steps needs --seed: a run of some steps counts nothing")
			os.Exit(2)
		}
		faultSteps = strings.Split(*steps, ",")
	}
	if *servers != 3 && *servers != 5 {
		fmt.Fprintln(os.Stderr, "deep: --servers must be 3 or 5")
		os.Exit(2)
	}
	if *servers == 5 && *seed == 0 && (*docs != "" || *seeds == defaultSeeds) {
		fmt.Fprintln(os.Stderr, "deep: --servers 5 counts for itself: it needs --docs '' and another file for --seeds")
		os.Exit(2)
	}
	if err := run(*budget, *only, *seeds, *docs, *keep, *seed, max(*lanes, 1), *servers); err != nil {
		fmt.Fprintln(os.Stderr, "deep:", err)
		os.Exit(1)
	}
}

// defaultSeeds counts the seeds of clusters of three.
const defaultSeeds = "test/fault/deep/totals.json"

func run(budget time.Duration, only, seeds, docs, keep string, seed uint64, lanes, servers int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "corbel-deep")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := faultrun.Build(dir)
	if err != nil {
		return err
	}
	keep, err = filepath.Abs(keep)
	if err != nil {
		return err
	}
	lab := &faultrun.Lab{Binary: bin, Dir: dir, Keep: keep, Servers: servers}
	if seed != 0 {
		for _, r := range chosen {
			if _, err := r.run(ctx, lab, seed); err != nil {
				return fmt.Errorf("%s, seed %d: %w", r.name, seed, err)
			}
		}
		return nil
	}
	book, err := readTotals(seeds)
	if err != nil {
		return err
	}
	failures := newSchedule(lab, book, seeds).run(ctx, chosen, budget, lanes)
	if docs != "" {
		if err := book.publish(docs); err != nil {
			return err
		}
	}
	fmt.Print(book.table())
	if failures > 0 {
		return fmt.Errorf("%d seeds failed", failures)
	}
	return nil
}

func choose(only string) ([]row, error) {
	if only == "" {
		return rows, nil
	}
	var list []row
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no row is called %q (know %s)", name, strings.Join(names(), " "))
		}
		list = append(list, rows[i])
	}
	return list, nil
}
