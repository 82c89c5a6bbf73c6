package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

func TestUnreached(t *testing.T) {
	check := func(name string, handlers []string, pipelines ...*monitor.Ref) *monitor.CheckConfig {
		return &monitor.CheckConfig{Meta: meta(name), Command: "x", Interval: 5, Publish: true,
			Subscriptions: []string{"linux"}, Handlers: handlers, Pipelines: pipelines}
	}
	refused := writes("refused")
	refused.Filters = []string{"hours"}
	pipe := func(name, handler string) *monitor.Pipeline {
		return &monitor.Pipeline{Meta: meta(name),
			Workflows: []*monitor.Workflow{{Name: "w", Handler: &monitor.Ref{Name: handler, Type: "Handler",
				APIVersion: "core/v2"}}}}
	}
	unpublished := check("unpublished", []string{"none"})
	unpublished.Publish = false
	w := start(t, nil, writes("works"), refused, pipe("good", "works"), pipe("bad", "gone"),
		&monitor.Handler{Meta: meta("empty"), Type: monitor.HandlerSet},
		check("fine", []string{"none", "works"}), check("fine-by-pipeline", []string{"none"}, ref("Pipeline", "good")),
		check("wants-none", nil), unpublished,
		check("typo", []string{"wroks"}), check("behind-a-refused-one", []string{"refused"}),
		check("set-of-none", []string{"empty"}),
		check("no-pipeline", nil, ref("Pipeline", "absent")), check("pipeline-to-nowhere", nil, ref("Pipeline", "bad")))
	var got []string
	for _, u := range w.Unreached() {
		got = append(got, fmt.Sprintf("%s %s/%s: %s", u.Kind, u.Namespace, u.Name, u.Reason))
	}
	want := []string{
		`check default/behind-a-refused-one: handler "refused": filter "hours" does not exist`,
		`check default/no-pipeline: pipeline "absent" does not exist`,
		`check default/pipeline-to-nowhere: pipeline "bad": workflow w: handler "gone" does not exist`,
		`check default/set-of-none: its sets of handlers are empty`,
		`check default/typo: handler "wroks": it does not exist`,
		`handler default/refused: filter "hours" does not exist`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}
