package main

import (
	"slices"
	"testing"
)

func TestTargetsAreFound(t *testing.T) {
	all, err := find("../..")
	if err != nil || len(all) < 30 {
		t.Fatalf("%d targets, %v", len(all), err)
	}
	if !slices.ContainsFunc(all, func(t target) bool { return t.name == "FuzzQueryBodies" }) {
		t.Errorf("api/consulapi's is missing among %v", all)
	}
}
