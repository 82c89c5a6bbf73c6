package driver

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strconv"
	"syscall"

	"corbel.dev/corbel/kit/errkind"
)

// Decode reads a task's config into a struct of json tags. Unknown keys are named. Blocks of job files come as lists
// of one object; where an object is wanted the list's objects are merged.
func Decode(config map[string]any, into any) error {
	text, err := json.Marshal(config)
	if err != nil {
		return errkind.E(errkind.Invalid, "config", err)
	}
	if err := Strict(text, into); err != nil {
		return errkind.E(errkind.Invalid, "config", err)
	}
	return nil
}

// Strict reads JSON without unknown keys.
func Strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// CPUs is how many processors there are.
func CPUs() int { return runtime.NumCPU() }

// Pairs is an object of texts, which a job file may also write as a list of objects.
type Pairs map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (p *Pairs) UnmarshalJSON(text []byte) error {
	var one map[string]any
	if err := json.Unmarshal(text, &one); err != nil {
		var list []map[string]any
		if json.Unmarshal(text, &list) != nil {
			return err
		}
		one = map[string]any{}
		for _, m := range list {
			for k, v := range m {
				one[k] = v
			}
		}
	}
	*p = Pairs{}
	for k, v := range one {
		switch v := v.(type) {
		case string:
			(*p)[k] = v
		case bool:
			(*p)[k] = strconv.FormatBool(v)
		case float64:
			(*p)[k] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			return errkind.Errorf(errkind.Invalid, "%s: want text", k)
		}
	}
	return nil
}

// signals are those that tasks may be sent.
var signals = map[string]syscall.Signal{
	"SIGABRT": syscall.SIGABRT, "SIGALRM": syscall.SIGALRM, "SIGBUS": syscall.SIGBUS, "SIGFPE": syscall.SIGFPE,
	"SIGHUP": syscall.SIGHUP, "SIGILL": syscall.SIGILL, "SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL,
	"SIGPIPE": syscall.SIGPIPE, "SIGQUIT": syscall.SIGQUIT, "SIGSEGV": syscall.SIGSEGV, "SIGTERM": syscall.SIGTERM,
	"SIGTRAP": syscall.SIGTRAP,
}

// Signal finds a signal by its name.
func Signal(name string) (syscall.Signal, error) {
	if s, ok := signals[name]; ok {
		return s, nil
	}
	return 0, errkind.Errorf(errkind.Invalid, "%q is not a signal that tasks can be sent: use a name such as SIGHUP",
		name)
}
