package command

import "math"

const (
	// trendValues is how many of the newest values a trend draws.
	trendValues = 24
	// maxTrends bounds what is remembered: a list that long is not read on a terminal.
	maxTrends = 2000
)

// sparks are eighths of a line.
var sparks = []rune("▁▂▃▄▅▆▇█")

// Trends remembers the numbers that --watch reads again and again, and draws each as a line of bars, from its least to
// its greatest. It draws on terminals alone: a nil Trends remembers nothing and adds no column. The zero value is
// ready. It is used by one goroutine.
type Trends struct{ kept map[string][]float64 }

// Trends is for a command that writes to e.Out, again and again where watch says so; nil where nobody looks.
func (e *Env) Trends(watch bool) *Trends {
	if _, terminal := OnTerminal(e.Out, e.Getenv).(*Terminal); !watch || !terminal {
		return nil
	}
	return &Trends{}
}

// Head is a table's head with the column of the trend.
func (t *Trends) Head(cells ...string) []string { return t.Row(cells, "TREND") }

// Row is a table's row with the cell of the trend.
func (t *Trends) Row(cells []string, trend string) []string {
	if t == nil {
		return cells
	}
	return append(cells, trend)
}

// Add remembers the newest value of what has a name, and returns its line.
func (t *Trends) Add(name string, value float64) string {
	if t == nil {
		return ""
	}
	past, known := t.kept[name]
	if !known && len(t.kept) >= maxTrends {
		return ""
	}
	if t.kept == nil {
		t.kept = map[string][]float64{}
	}
	past = append(past, value)
	if len(past) > trendValues {
		past = past[1:]
	}
	t.kept[name] = past
	return sparkline(past)
}

// Beside is text with the line of what has a name behind it.
func (t *Trends) Beside(text, name string, value float64) string {
	if line := t.Add(name, value); line != "" {
		return text + "  " + line
	}
	return text
}

// sparkline draws values from the least to the greatest; those that are all alike are a flat line.
func sparkline(values []float64) string {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		at := 0
		if most > least {
			at = int((v - least) / (most - least) * float64(len(sparks)-1))
		}
		line[i] = sparks[min(max(at, 0), len(sparks)-1)]
	}
	return string(line)
}
