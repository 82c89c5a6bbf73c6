//go:build !linux

package qdisc

// Read tells nothing here: there is no traffic scheduler.
func Read() (map[int]Counts, error) { return nil, nil }
