package clustercmd

import (
	"bytes"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// TestMemberTrends: a member that comes and goes is seen to, where somebody looks.
func TestMemberTrends(t *testing.T) {
	members := []client.Member{{Name: "s1", Addr: "10.0.0.1", Port: 8301, Tags: map[string]string{"dc": "dc1"}}}
	const alive, failed = 1, 4
	for _, trends := range []*command.Trends{{}, nil} {
		var out bytes.Buffer
		for _, status := range []int{alive, failed, alive, failed} {
			out.Reset()
			members[0].Status = status
			if err := writeMembers(&out, members, trends); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Contains(out.String(), "dc1  ▁█▁█\n"); got != (trends != nil) {
			t.Errorf("with trends: %v\n%s", trends != nil, &out)
		}
	}
}
