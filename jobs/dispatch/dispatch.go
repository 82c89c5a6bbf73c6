// Package dispatch makes a job from a parameterized one, a payload and meta (NO-13).
//
// A dispatch with a token that a child of the same parent has is that child again: the caller asks
// state.State.Dispatched before it makes one, and the command is judged by it once more in the order of commits. The
// package is pure: time and chance come in.
package dispatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

const (
	// MaxPayload is NK-4.
	MaxPayload = 16 << 10
	maxPrefix  = 128
	maxMeta    = 64 << 10 // of all keys and values
)

// The rules for a payload.
const (
	Optional  = "optional"
	Required  = "required"
	Forbidden = "forbidden"
)

// Request is what a dispatch brings.
type Request struct {
	Payload  []byte
	Meta     map[string]string
	Token    string // idempotency
	Prefix   string // of the id's last part
	Priority int    // 0: the parent's
}

// Check tells all that is wrong with a dispatch of parent.
func Check(parent *jobs.Job, r Request) error {
	switch {
	case parent == nil:
		return errkind.New(errkind.NotFound, "the job does not exist")
	case parent.Dispatch == nil || parent.Origin.Dispatched:
		return errkind.Errorf(errkind.Invalid, "job %q is not parameterized: it cannot be dispatched", parent.ID)
	case parent.Stop:
		return errkind.Errorf(errkind.Invalid, "job %q is stopped: start it before it is dispatched", parent.ID)
	}
	var wrong []error
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	rules := parent.Dispatch
	switch {
	case len(r.Payload) > MaxPayload:
		say("the payload has %d bytes: at most %d", len(r.Payload), MaxPayload)
	case rules.Payload == Required && len(r.Payload) == 0:
		say("the payload is missing: job %q requires one", parent.ID)
	case rules.Payload == Forbidden && len(r.Payload) > 0:
		say("there is a payload: job %q takes none", parent.ID)
	}
	bytes := 0
	for _, key := range slices.Sorted(maps.Keys(r.Meta)) {
		bytes += len(key) + len(r.Meta[key])
		if !slices.Contains(rules.MetaRequired, key) && !slices.Contains(rules.MetaOptional, key) {
			say("meta %q is not one of those that job %q takes", key, parent.ID)
		}
	}
	if bytes > maxMeta {
		say("meta has %d bytes: at most %d", bytes, maxMeta)
	}
	for _, key := range rules.MetaRequired {
		if _, ok := r.Meta[key]; !ok {
			say("meta %q is missing: job %q requires it", key, parent.ID)
		}
	}
	if len(r.Prefix) > maxPrefix || strings.ContainsFunc(r.Prefix, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c) || c == '/'
	}) {
		say("the prefix %.40q has at most %d bytes, and no spaces or slashes", r.Prefix, maxPrefix)
	}
	if r.Priority < 0 || r.Priority > 100 {
		say("priority %d: 1 to 100, or 0 for that of job %q", r.Priority, parent.ID)
	}
	return errkind.E(errkind.Invalid, "", errors.Join(wrong...))
}

// Child is the job that a dispatch of parent makes, after Check.
func Child(parent *jobs.Job, r Request, now jobs.Time, dice *jobs.Dice) *jobs.Job {
	return Named(parent, ChildID(parent.ID, r.Prefix, now, dice), r, now)
}

// Named is Child with an id that is known. All that a dispatch does not change, the child shares with its parent:
// whoever has one of them has the most of the other (jobs.Job.SharesBody).
func Named(parent *jobs.Job, id string, r Request, now jobs.Time) *jobs.Job {
	c := *parent
	c.ID, c.Name = id, id
	c.Origin = jobs.Origin{ParentID: parent.ID, Dispatched: true, Payload: r.Payload, Token: r.Token}
	c.Revision = jobs.Revision{SubmitTime: now}
	if len(r.Meta) > 0 {
		c.Meta = make(map[string]string, len(parent.Meta)+len(r.Meta))
		maps.Copy(c.Meta, parent.Meta)
		maps.Copy(c.Meta, r.Meta)
	}
	if r.Priority > 0 {
		c.Priority = r.Priority
	}
	return &c
}

// ChildID is parent/dispatch-[prefix-]seconds-8 hex digits.
func ChildID(parent, prefix string, now jobs.Time, dice *jobs.Dice) string {
	if prefix != "" {
		prefix += "-"
	}
	return parent + "/dispatch-" + prefix + strconv.FormatInt(int64(now)/1e9, 10) + "-" +
		fmt.Sprintf("%08x", uint32(dice.Next()))
}
