package usual

import "testing"

func TestLevel(t *testing.T) {
	var u Level
	for range 200 {
		u.Learn(4, 100)
	}
	if !u.Known() || u.Level < 3.9 || u.Level > 4.1 {
		t.Fatalf("a steady 4 was learned as %+v", u)
	}
	for range 180 { // half an hour of an incident
		u.Learn(400, 100)
	}
	if u.Level > 6 {
		t.Errorf("half an hour of an incident made %.1f usual instead of 4", u.Level)
	}
	for range 8640 { // a day of a new kind of load
		u.Learn(8, 100)
	}
	if u.Level < 7.5 || u.Level > 8.5 || u.High < u.Level {
		t.Errorf("after a day of 8 the usual is %+v", u)
	}
}
