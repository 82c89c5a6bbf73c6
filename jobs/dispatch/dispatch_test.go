package dispatch

import (
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

func parent(change func(*jobs.Job)) *jobs.Job {
	j := &jobs.Job{JobKey: jobs.JobKey{Namespace: "n", ID: "mail"}, Type: jobs.Batch, Priority: 50,
		Meta:     map[string]string{"who": "nobody", "kept": "1"},
		Dispatch: &jobs.DispatchRules{Payload: Optional, MetaRequired: []string{"who"}, MetaOptional: []string{"cc"}},
		Revision: jobs.Revision{Version: 3, Stable: true}}
	if change != nil {
		change(j)
	}
	return j
}

func TestCheck(t *testing.T) {
	good := Request{Meta: map[string]string{"who": "a", "cc": "b"}, Payload: make([]byte, MaxPayload), Prefix: "x"}
	for _, test := range []struct {
		job    *jobs.Job
		change func(*Request)
		want   []string // "": good
	}{
		{parent(nil), func(*Request) {}, nil},
		{nil, func(*Request) {}, []string{"does not exist"}},
		{parent(func(j *jobs.Job) { j.Dispatch = nil }), func(*Request) {}, []string{"not parameterized"}},
		{parent(func(j *jobs.Job) { j.Origin.Dispatched = true }), func(*Request) {}, []string{"not parameterized"}},
		{parent(func(j *jobs.Job) { j.Stop = true }), func(*Request) {}, []string{"stopped"}},
		{parent(nil), func(r *Request) { r.Payload = make([]byte, MaxPayload+1) }, []string{"16385 bytes: at most 16384"}},
		{parent(func(j *jobs.Job) { j.Dispatch.Payload = Forbidden }), func(*Request) {}, []string{"takes none"}},
		{parent(func(j *jobs.Job) { j.Dispatch.Payload = Required }), func(r *Request) { r.Payload, r.Meta = nil, nil },
			[]string{"the payload is missing", `meta "who" is missing`}},
		{parent(nil), func(r *Request) { r.Meta = map[string]string{"other": "", "kept": ""} },
			[]string{`meta "other" is not`, `meta "kept" is not`, `meta "who" is missing`}},
		{parent(nil), func(r *Request) { r.Meta["cc"] = strings.Repeat("x", maxMeta) }, []string{"meta has"}},
		{parent(nil), func(r *Request) { r.Prefix = "a/b" }, []string{"prefix"}},
		{parent(nil), func(r *Request) { r.Prefix = strings.Repeat("a", 200) }, []string{"prefix"}},
		{parent(nil), func(r *Request) { r.Priority = 101 }, []string{"priority 101"}},
	} {
		r := good
		r.Meta = map[string]string{"who": "a", "cc": "b"}
		test.change(&r)
		err := Check(test.job, r)
		if err == nil && test.want == nil {
			continue
		}
		if err == nil || errkind.Of(err) != errkind.Invalid && errkind.Of(err) != errkind.NotFound ||
			strings.Count(err.Error(), "\n")+1 != len(test.want) {
			t.Errorf("%v, want %q", err, test.want)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// TestChild: the child has the parent's groups, its own meta, and an id as the contract says.
func TestChild(t *testing.T) {
	p := parent(nil)
	dice := jobs.NewDice(1, 2)
	c := Child(p, Request{Meta: map[string]string{"who": "a"}, Payload: []byte("p"), Token: "t"}, 1_700_000_000e9, dice)
	if !regexp.MustCompile(`^mail/dispatch-1700000000-[0-9a-f]{8}$`).MatchString(c.ID) || c.Name != c.ID ||
		c.Meta["who"] != "a" || c.Meta["kept"] != "1" || p.Meta["who"] != "nobody" || string(c.Origin.Payload) != "p" ||
		!c.Origin.Dispatched || c.Origin.ParentID != "mail" || c.Version != 0 || c.Stable || c.Priority != 50 {
		t.Errorf("%+v", c)
	}
	d := Child(p, Request{Prefix: "eu", Priority: 80}, 1_700_000_000e9, dice)
	if !strings.HasPrefix(d.ID, "mail/dispatch-eu-1700000000-") || d.Priority != 80 || d.ID == c.ID {
		t.Errorf("%+v", d)
	}
	if Check(c, Request{}) == nil {
		t.Error("a child is not dispatched again")
	}
}
