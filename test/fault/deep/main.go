// Command deep runs the fault scenarios for as long as it is given and adds what
// it did to the totals in docs/reliability.md.
//
//	go run ./test/fault/deep [--budget 20m] [--only linear,crash,...] [--seeds FILE] [--docs FILE] [--keep DIR]
//
// Seeds are counted in a file, so that each run goes on where the last one
// stopped; a seed that failed is printed and its histories are kept, and
// --seed repeats it. The exit code is 1 when a promise was broken.
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

	"corbel.dev/corbel/test/fault"
)

func main() {
	budget := flag.Duration("budget", 20*time.Minute, "how long to run")
	only := flag.String("only", "", "run these rows alone, separated by commas: "+strings.Join(names(), " "))
	seeds := flag.String("seeds", ".cache/fault-seeds.json", "file that counts seeds and totals")
	docs := flag.String("docs", "docs/reliability.md", "page whose totals are replaced; empty for none")
	keep := flag.String("keep", ".cache/fault-kept", "folder for histories and pictures of failed seeds")
	seed := flag.Uint64("seed", 0, "repeat this seed once, and count nothing")
	flag.Parse()
	if err := run(*budget, *only, *seeds, *docs, *keep, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "deep:", err)
		os.Exit(1)
	}
}

func run(budget time.Duration, only, seeds, docs, keep string, seed uint64) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
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
	lab := &faultrun.Lab{Binary: bin, Dir: dir, Keep: keep}
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
	failures := turns(ctx, lab, chosen, book, seeds)
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

// turns gives each row its turn until time is up. What the end of time cut off is not counted.
func turns(ctx context.Context, lab *faultrun.Lab, chosen []row, book *totals, file string) (failures int) {
	for i := 0; ctx.Err() == nil; i++ {
		r := chosen[i%len(chosen)]
		t := book.row(r.name)
		begin := time.Now()
		done, err := r.run(ctx, lab, t.NextSeed)
		if ctx.Err() != nil {
			return failures
		}
		t.add(done, time.Since(begin), err)
		fmt.Printf("%s seed %d: %s in %s\n", r.name, t.NextSeed, done.text(), time.Since(begin).Round(time.Millisecond))
		if err != nil {
			failures++
			fmt.Printf("FAILED, repeat with: go run ./test/fault/deep --only %s --seed %d\n%.4000s\n", r.name, t.NextSeed, err)
		}
		t.NextSeed++
		if err := book.write(file); err != nil {
			fmt.Fprintln(os.Stderr, "deep:", err)
			return failures + 1
		}
	}
	return failures
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
