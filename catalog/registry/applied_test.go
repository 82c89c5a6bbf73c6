package registry

import (
	"testing"
	"time"
)

func TestAppliedTimesGiveTheBatchOfAnIndex(t *testing.T) {
	var a appliedTimes
	if _, ok := a.when(1); ok {
		t.Error("a time of nothing")
	}
	begin := time.Unix(1000, 0)
	for i := range uint64(10) { // batches of three commands each
		a.note(100+3*i, 103+3*i, begin.Add(time.Duration(i)*time.Second))
	}
	for _, c := range []struct {
		index uint64
		batch int // -1: unknown
	}{{100, -1}, {101, 0}, {103, 0}, {104, 1}, {130, 9}, {131, -1}} {
		at, ok := a.when(c.index)
		if ok != (c.batch >= 0) || ok && !at.Equal(begin.Add(time.Duration(c.batch)*time.Second)) {
			t.Errorf("index %d: %v %v, want batch %d", c.index, at, ok, c.batch)
		}
	}
	a.forget()
	if _, ok := a.when(130); ok {
		t.Error("a time from before the restore")
	}
}

func TestAppliedTimesAreBounded(t *testing.T) {
	var a appliedTimes
	begin := time.Unix(1000, 0)
	for i := range uint64(appliedMarks + 100) {
		a.note(i, i+1, begin.Add(time.Duration(i)))
	}
	if at, ok := a.when(1); !ok || !at.Equal(begin.Add(100)) {
		t.Errorf("forgotten index: %v %v, want the oldest time that is known", at, ok)
	}
	if at, ok := a.when(appliedMarks + 100); !ok || !at.Equal(begin.Add(appliedMarks+99)) {
		t.Errorf("newest index: %v %v", at, ok)
	}
	if len(a.marks) != appliedMarks {
		t.Errorf("%d marks", len(a.marks))
	}
}
