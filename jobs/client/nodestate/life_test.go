package nodestate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"corbel.dev/corbel/kit/vfs"
)

// TestLivesGoUp: each start has a number above those before, by the clock or by what is stored, also when the clock
// goes back and when the file is damaged or gone.
func TestLivesGoUp(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		now   time.Time
		spoil string // what stands in the file; "-" deletes it
		want  uint64
	}{{now, "", 1000}, {now, "", 1001}, {time.Unix(7, 0), "", 1002}, {time.Unix(2000, 0), "", 2000},
		{time.Unix(2001, 0), "no number", 2001}, {time.Unix(2002, 0), "-", 2002}, {time.Time{}, "-", 1}} {
		if name := filepath.Join(dir, "life"); step.spoil == "-" {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		} else if step.spoil != "" {
			if err := os.WriteFile(name, []byte(step.spoil), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(vfs.OS{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if life, err := s.Life(step.now); err != nil || life != step.want {
			t.Errorf("start %d has the number %d, want %d: %v", i, life, step.want, err)
		}
	}
	if life, err := (*Store)(nil).Life(now); err != nil || life != 1000 {
		t.Errorf("without a folder: %d, %v", life, err)
	}
}
