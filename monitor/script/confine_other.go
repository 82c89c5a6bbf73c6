//go:build !linux

package script

// confine does nothing here: the limits between a program's steps and on its time hold all the same.
func confine(uint64) error { return nil }
