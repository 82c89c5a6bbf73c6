package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/node/config"
)

func TestLogFilesMakeRoom(t *testing.T) {
	dir := t.TempDir()
	clk := clock.NewFake(time.Unix(1_700_000_000, 0))
	f, err := openLogFile(&config.Logging{File: filepath.Join(dir, "agent.log"), RotateBytes: 20,
		RotateInterval: time.Hour, RotateMaxFiles: 2}, clk)
	if err != nil {
		t.Fatal(err)
	}
	write := func(line string) {
		t.Helper()
		clk.Advance(time.Second)
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"one 1234567890\n", "two 1234567890\n", "three 123456789\n", "four 1234567890\n"} {
		write(line) // each pair is past 20 bytes
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	now, err := os.ReadFile(filepath.Join(dir, "agent.log"))
	if err != nil || !strings.HasPrefix(string(now), "four") {
		t.Errorf("the file of now holds %q, %v", now, err)
	}
	all := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	if strings.Contains(all, "one") || !strings.Contains(all, "two") || !strings.Contains(all, "three") {
		t.Errorf("kept %q", all)
	}
	clk.Advance(time.Hour)
	write("five\n")
	if now, _ = os.ReadFile(filepath.Join(dir, "agent.log")); string(now) != "five\n" {
		t.Errorf("after an hour the file holds %q", now)
	}
	again, err := openLogFile(&config.Logging{File: dir}, clk)
	if err != nil || again.path != filepath.Join(dir, "corbel.log") {
		t.Errorf("a folder gives %v, %v", again, err)
	}
	if _, err := Writer(&config.Logging{Syslog: true, SyslogFacility: "NOWHERE"}, clk); err == nil ||
		!strings.Contains(err.Error(), "syslog_facility") {
		t.Errorf("a wrong facility: %v", err)
	}
}
