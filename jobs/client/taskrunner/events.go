package taskrunner

import (
	"fmt"
	"strconv"

	"corbel.dev/corbel/jobs/client/driver"
)

// terminated is the event of an end.
func terminated(e driver.Exit) (text string, details map[string]string) {
	text = fmt.Sprintf("Exit Code: %d", e.Code)
	details = map[string]string{"exit_code": strconv.Itoa(e.Code), "signal": strconv.Itoa(e.Signal),
		"oom_killed": strconv.FormatBool(e.OOM)}
	if e.Signal != 0 {
		text += fmt.Sprintf(", Signal: %d", e.Signal)
	}
	if e.OOM {
		text += `, Exit Message: "OOM Killed"`
	} else if e.Text != "" {
		text += fmt.Sprintf(", Exit Message: %q", e.Text)
		details["exit_message"] = e.Text
	}
	return text, details
}
