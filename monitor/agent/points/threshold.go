package points

import (
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/monitor"
)

// Judgement is what thresholds make of points.
type Judgement struct {
	Status      uint32            // 0 when nothing is beyond a limit
	Annotations map[string]string // for the event
}

// Judge compares points with thresholds. A threshold that no point fits to has its null status.
func Judge(points []*monitor.Point, thresholds []*monitor.MetricThreshold) Judgement {
	j := Judgement{Annotations: map[string]string{}}
	word := ""
	for _, t := range thresholds {
		found := false
		for _, p := range points {
			if !fits(t, p) {
				continue
			}
			found = true
			for _, limits := range t.Thresholds {
				j.judge(t, limits, p.Value, &word)
			}
		}
		if !found && t.NullStatus > 0 {
			text := nameOf(t) + " was not found in the metrics of the check"
			j.Annotations[key(t, "null-status", t.NullStatus)] = text
			if t.NullStatus > j.Status {
				j.Status, word = t.NullStatus, text
			}
		}
	}
	if word != "" {
		j.Annotations["sensu.io/notifications/"+caption(j.Status)] = word
	}
	return j
}

func (j *Judgement) judge(t *monitor.MetricThreshold, l *monitor.ThresholdLimits, value float64, word *string) {
	for _, side := range []struct{ name, limit string }{{"min", l.Min}, {"max", l.Max}} {
		limit, err := strconv.ParseFloat(side.limit, 64)
		if err != nil { // "" is no limit; others were refused where the check was made
			continue
		}
		beyond := side.name == "min" && value < limit || side.name == "max" && value > limit
		text := "The value of " + nameOf(t)
		if !beyond {
			text += " is within the configured threshold (" + side.name + ": " + side.limit + ", actual: " + plain(value) + ")"
			j.Annotations[key(t, side.name, 0)] = text
			if j.Status == 0 {
				*word = text
			}
			continue
		}
		text += " exceeded the configured threshold (" + side.name + ": " + side.limit + ", actual: " + plain(value) + ")"
		j.Annotations[key(t, side.name, l.Status)] = text
		if l.Status > j.Status {
			j.Status, *word = l.Status, text
		}
		return // a value cannot be beyond both
	}
}

func plain(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// fits reports whether a point is one that the threshold is for: its name, and all of its tags.
func fits(t *monitor.MetricThreshold, p *monitor.Point) bool {
	if t.Name != p.Name {
		return false
	}
	for _, want := range t.Tags {
		if !slices.ContainsFunc(p.Tags, func(tag *monitor.MetricTag) bool {
			return tag.Name == want.Name &&
				tag.Value == want.Value
		}) {
			return false
		}
	}
	return true
}

func nameOf(t *monitor.MetricThreshold) string {
	var tags []string
	for _, tag := range t.Tags {
		tags = append(tags, tag.Name+"="+tag.Value)
	}
	if len(tags) == 0 {
		return t.Name
	}
	return t.Name + " (" + strings.Join(tags, ",") + ")"
}

func key(t *monitor.MetricThreshold, measure string, status uint32) string {
	k := "sensu.io/output_metric_thresholds/" + t.Name
	for _, tag := range t.Tags {
		k += "." + tag.Value
	}
	return k + "/" + measure + "/" + caption(status)
}

// caption is a status in words.
func caption(status uint32) string {
	switch status {
	case 0:
		return "ok"
	case 1:
		return "warning"
	case 2:
		return "critical"
	}
	return "unknown"
}
