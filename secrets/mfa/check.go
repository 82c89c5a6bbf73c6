package mfa

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/onetime"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/task"
)

// payload reads the passcodes of a request: one text or a list of them, by the method's ID or name.
func payload(f *secrets.Fields) (map[string][]string, error) {
	members, ok := f.Any("mfa_payload").(map[string]any)
	if text, is := f.Any("mfa_payload").(string); is { // JSON in a string, as command lines send it
		ok = json.Unmarshal([]byte(text), &members) == nil
	}
	if !ok && f.Any("mfa_payload") != nil {
		return nil, errPayload
	}
	inner := secrets.FieldsOf(members)
	out := map[string][]string{}
	for _, method := range slices.Sorted(maps.Keys(members)) {
		out[method] = inner.Strings(method)
	}
	if inner.Err() != nil {
		return nil, errPayload
	}
	return out, f.Err()
}

var errPayload = errkind.New(errkind.Invalid, "field \"mfa_payload\": must be an object of lists of passcodes")

// check judges what was given by every enforcement. Nobody else judges codes of the entity until release.
func (f *Factors) check(ctx context.Context, t *task.Task, r *rules, need []*Enforcement, entity string,
	given map[string][]string) (ops []storage.Op, release func(), err error) {
	free := f.names.Take(entity)
	defer func() {
		if err != nil {
			free()
		}
	}()
	view := f.Records.At(t.Tables.IdentitiesPrefix)
	judged, own := map[string]error{}, []secrets.Op{}
	for _, e := range need {
		why, good := []string{}, false
		for _, id := range e.Methods {
			m := r.method(id)
			if m == nil {
				continue
			}
			codes := given[m.ID]
			if m.Name != "" {
				codes = slices.Concat(codes, given[m.Name])
			}
			if len(codes) == 0 {
				continue
			}
			was, is := judged[id]
			if !is {
				var op secrets.Op
				if op, was = f.judge(ctx, view, m, entity, codes, t.Now); was == nil {
					own = append(own, op)
				} else if !errkind.Is(was, errkind.Denied) {
					return nil, nil, was // of the storage: says nothing of the code
				}
				judged[id] = was
			}
			if was == nil {
				good = true
				break
			}
			why = append(why, errkind.Text(was))
		}
		if len(why) == 0 {
			why = []string{"no passcode of one of its methods was given"}
		}
		if !good {
			return nil, nil, errkind.Errorf(errkind.Denied, "login MFA: enforcement %q is not satisfied: %s", e.Name,
				strings.Join(why, "; "))
		}
	}
	ops, err = view.Ops(own)
	return ops, free, err
}

func denied(m *Method, text string) error {
	return errkind.Errorf(errkind.Denied, "method %s: %s", m.shown(), text)
}

// shown is the method's name, or its ID where it has none.
func (m *Method) shown() string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID
}

// judge takes a code of one method. It gives what is to be stored so that the code is good once.
func (f *Factors) judge(ctx context.Context, v engine.View, m *Method, entity string, codes []string,
	now time.Time) (op secrets.Op, err error) {
	if len(codes) != 1 {
		return op, denied(m, "give one passcode")
	}
	who := entity + "/" + m.ID
	if err := f.mayTry(who, m, now); err != nil {
		return op, err
	}
	s, err := get[secret](ctx, v, secretKey(entity, m.ID))
	if err != nil {
		return op, err
	}
	if s == nil {
		return op, denied(m, "the entity has no key for it: an operator makes one at "+
			"identity/mfa/method/totp/admin-generate")
	}
	u, err := get[used](ctx, v, usedKey(entity, m.ID))
	if err != nil {
		return op, err
	}
	if u == nil || u.Of != s.ID {
		u = &used{Of: s.ID}
	}
	got, after, err := s.Take(strings.TrimPrefix(codes[0], "passcode="), u.Steps, now)
	switch {
	case err != nil:
		return op, err
	case got == onetime.Again:
		return op, denied(m, "code already used; wait until the next time period")
	case got == onetime.Wrong:
		f.failed(who, m, now)
		return op, denied(m, "the passcode is wrong")
	}
	f.mu.Lock()
	delete(f.wrong, who)
	f.mu.Unlock()
	u.Steps = after
	return storage.PutJSON(usedKey(entity, m.ID), u)
}

// mayTry refuses to look at a code after too many wrong ones.
func (f *Factors) mayTry(who string, m *Method, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.wrong[who]; c != nil && now.Before(c.blocked) {
		return denied(m, fmt.Sprintf("maximum TOTP validation attempts %d exceeded: try again in %v", m.Attempts,
			c.blocked.Sub(now).Round(time.Second)))
	}
	return nil
}

// failed counts a wrong code. After as many in a row as the method allows none is looked at for one period of its
// codes, then for twice as long each time, up to an hour.
func (f *Factors) failed(who string, m *Method, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.wrong[who]
	if c == nil || now.After(c.forget) {
		if len(f.wrong) >= maxCounted {
			maps.DeleteFunc(f.wrong, func(_ string, c *count) bool { return now.After(c.forget) })
		}
		if f.wrong == nil {
			f.wrong = map[string]*count{}
		}
		c = &count{}
		f.wrong[who] = c
	}
	if c.failed++; c.failed >= m.Attempts {
		c.blocked = now.Add(min(time.Duration(m.Period)*time.Second<<min(c.blocks, 12), longestBlock))
		c.failed = 0
		c.blocks++
	}
	c.forget = now.Add(24 * time.Hour)
}
