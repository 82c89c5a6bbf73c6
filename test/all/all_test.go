package main

import (
	"os"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	events := []string{
		`{"Action":"run","Package":"p","Test":"A"}`,
		`{"Action":"run","Package":"p","Test":"A/x/deep"}`,
		`{"Action":"pass","Package":"p","Test":"A/x/deep"}`,
		`{"Action":"pass","Package":"p","Test":"A/x"}`,
		`{"Action":"pass","Package":"p","Test":"A"}`,
		`{"Action":"run","Package":"p","Test":"B"}`,
		`{"Action":"output","Package":"p","Test":"B","Output":"b_test.go:1: NOT RUN: no network\n"}`,
		`{"Action":"skip","Package":"p","Test":"B"}`,
		`{"Action":"run","Package":"p","Test":"C"}`,
		`{"Action":"fail","Package":"p","Test":"C"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"Action":"output","Package":"q","Output":"panic outside of a test\n"}`,
		`{"Action":"fail","Package":"q"}`,
		`{"Action":"skip","Package":"none"}`,
	}
	r := &runner{}
	if err := newTally(r).read(strings.NewReader(strings.Join(events, "\n"))); err != nil {
		t.Fatal(err)
	}
	if r.passed != 1 || r.failed != 2 || r.skipped != 1 {
		t.Errorf("%d passed, %d failed, %d skipped; want 1, 2, 1", r.passed, r.failed, r.skipped)
	}
	if len(r.notRun) != 1 || r.notRun[0] != "p B: no network" {
		t.Errorf("not run: %q", r.notRun)
	}
}

func TestRecognise(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		string(own): "Apache-2.0",
		"Business Source License 1.1 ... Change License: Mozilla Public License 2.0": "BUSL",
		"Mozilla Public License, version 2.0 ... GNU AFFERO GENERAL PUBLIC LICENSE":  "MPL-2.0",
		"Permission is hereby granted, free of charge, to any person":                "MIT",
		"Redistribution and use in source\nand binary forms, with or without":        "BSD",
		"GNU AFFERO GENERAL PUBLIC LICENSE Version 3":                                "AGPL",
		"all rights reserved": "not recognised",
	}
	for text, want := range tests {
		if got := recognise(text); got != want {
			t.Errorf("%.40q is %s, want %s", text, got, want)
		}
	}
}
