//go:build !helm

package helm

import "testing"

// The chart is judged by helm's library, which takes half a minute to build.
func TestChart(t *testing.T) {
	notRun(t, "the chart: cd packaging/helm && go test -tags helm ./...")
}
