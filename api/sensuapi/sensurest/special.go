package sensurest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
)

// Silences.

func showSilenced(q *request, o monitor.Object) (any, error) {
	return o.(*monitor.Silenced).Shown(q.cfg.Now().Unix()), nil
}

func admitSilenced(q *request, old, o monitor.Object) error {
	s := o.(*monitor.Silenced)
	if s.Begin < 0 || s.ExpireAt < 0 {
		return invalid(errors.New("begin and expire_at are Unix times, not negative"))
	}
	former, _ := old.(*monitor.Silenced)
	named := s.Name
	if s.Expire <= 0 && s.ExpireAt == 0 {
		s.Expire = int64(q.cfg.SilenceTime / time.Second)
	}
	s.Complete(former, q.who.User, q.cfg.Now().Unix())
	if most := q.cfg.SilenceMost; most > 0 && (s.ExpireAt == 0 || s.ExpireAt-s.Begin > int64(most/time.Second)) {
		return &apiError{http.StatusBadRequest, codeThreshold, fmt.Sprintf("expire: a silence lasts at most %d seconds here",
			int64(most/time.Second))}
	}
	if q.name != "" && s.Name != q.name {
		return invalid(fmt.Errorf("the silence of subscription %q and check %q is called %q, not %q", s.Subscription, s.Check,
			s.Name, named))
	}
	return nil
}

// silences answers what is asked of silences.
type silences struct{ *request }

// one answers what is special about silences: they are listed by subscription and by check, their names follow
// from these, and such as have ended are not there.
func (q silences) one() error {
	by := q.name
	switch {
	case len(q.rest) == 1 && q.r.Method == http.MethodGet && (by == "subscriptions" || by == "checks"):
		if err := q.may("list", "silenced", q.namespace, by+"/"+q.rest[0]); err != nil {
			return err
		}
		return lists(q).where(func(i *objects.Item) bool {
			s := i.Object().(*monitor.Silenced)
			return !s.Over(q.cfg.Now().Unix()) && (by == "checks" && s.Check == q.rest[0] ||
				by == "subscriptions" && s.Subscription == q.rest[0])
		})
	case len(q.rest) > 0:
		return errNotFound
	case q.name == "" && (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead):
		if err := q.may("list", "silenced", q.namespace, ""); err != nil {
			return err
		}
		return lists(q).where(func(i *objects.Item) bool {
			return !i.Object().(*monitor.Silenced).Over(q.cfg.Now().Unix())
		})
	case q.name == "" && q.r.Method == http.MethodPost && q.namespace != "":
		return q.new()
	case q.name != "" && q.r.Method != http.MethodPut && q.r.Method != http.MethodPost:
		if item, err := q.find(); err == nil && item.Object().(*monitor.Silenced).Over(q.cfg.Now().Unix()) {
			if err := q.may(q.verb(), "silenced", q.namespace, q.name); err != nil {
				return err
			}
			return errNotFound
		}
	}
	return errCommon
}

// new creates a silence. One of the same name that has ended makes room.
func (q silences) new() error {
	if err := q.may("create", "silenced", q.namespace, ""); err != nil {
		return err
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	o, err := q.read(b)
	if err != nil {
		return invalid(err)
	}
	s := o.(*monitor.Silenced)
	s.Name = "" // its parts make it
	name := monitor.SilenceName(s.Subscription, s.Check)
	old := q.cfg.Resources.View().Get("silenced", q.namespace, name)
	if old == nil {
		return q.store(objects.Create, s, nil)
	}
	if !old.Object().(*monitor.Silenced).Over(q.cfg.Now().Unix()) {
		return errExists
	}
	if err := q.ready(s, nil); err != nil {
		return err
	}
	op := q.op(objects.Put, s)
	op.If = old.Index
	if err := q.commit(op); err != nil {
		return err
	}
	return q.done()
}

// API keys.

func showAPIKey(_ *request, o monitor.Object) (any, error) {
	k := *o.(*monitor.APIKey)
	k.Hash = nil
	return &k, nil
}

func admitAPIKey(q *request, old, o monitor.Object) error {
	k := o.(*monitor.APIKey)
	if q.cfg.Resources.View().Get("users", "", k.Username) == nil {
		return invalid(fmt.Errorf("username: there is no user %q", k.Username))
	}
	if former, ok := old.(*monitor.APIKey); ok {
		k.CreatedAt = former.CreatedAt
		return nil
	}
	k.CreatedAt = q.cfg.Now().Unix()
	return nil
}

// apiKey answers what is special about API keys: a new one's name is chosen here, and told by a header.
func (q *request) apiKey() error {
	if q.r.Method != http.MethodPost || q.name != "" {
		return errCommon
	}
	if err := q.may("create", "apikeys", "", ""); err != nil {
		return err
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	k := new(monitor.APIKey)
	if err := json.Unmarshal(b, k); err != nil {
		return invalid(err)
	}
	k.Name = uuid.NewString()
	if err := q.ready(k, nil); err != nil {
		return err
	}
	if err := q.commit(q.op(objects.Create, k)); err != nil {
		return err
	}
	q.w.Header().Set("Location", strings.TrimSuffix(q.r.URL.Path, "/")+"/"+k.Name)
	q.w.WriteHeader(http.StatusCreated)
	return nil
}

// Checks.

// checks answers what checks have beside what all objects have.
type checks struct{ *request }

// one answers what is special about checks: their hooks one by one, and running one now.
func (q checks) one() error {
	if len(q.rest) == 0 {
		return errCommon
	}
	verb := q.verb()
	serve := by(checks.execute)
	switch {
	case q.sub(http.MethodPost, "execute"):
	case q.sub(http.MethodPut, "hooks", "*"):
		serve = by(checks.addHooks)
	case q.sub(http.MethodDelete, "hooks", "*", "hook", "*"):
		serve = by(checks.removeHook)
	default:
		return errNotFound
	}
	if err := q.may(verb, "checks", q.namespace, q.name); err != nil {
		return err
	}
	return serve(q.request)
}

// execute asks agents to run a check now.
func (q checks) execute() error {
	var in struct {
		Subscriptions []string `json:"subscriptions"`
		Reason        string   `json:"reason"`
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &in); err != nil {
			return invalid(err)
		}
	}
	if _, err := q.find(); err != nil {
		return err
	}
	issued, err := q.cfg.Execute(q.r.Context(), q.namespace, q.name, in.Subscriptions, q.who.User, in.Reason)
	if err != nil {
		return err
	}
	return q.answer(http.StatusAccepted, map[string]int64{"issued": issued})
}

// change writes a check as change leaves it, and makes it anew when somebody else changed the check meanwhile.
func (q checks) change(change func(*monitor.CheckConfig) error) error {
	for try := 1; ; try++ {
		item, err := q.find()
		if err != nil {
			return err
		}
		c := *item.Object().(*monitor.CheckConfig)
		c.CheckHooks = slices.Clone(c.CheckHooks)
		if err := change(&c); err != nil {
			return err
		}
		if err := c.Validate(); err != nil {
			return invalid(err)
		}
		op := objects.Op{Verb: objects.Put, Type: "checks", Namespace: q.namespace, Name: q.name,
			Encoded: tagproto.Append(nil, &c), If: item.Index}
		if err = q.cfg.Resources.Write(q.r.Context(), op); err == nil {
			return q.done()
		}
		if !errors.Is(err, objects.ErrPrecondition) || try == patchTries {
			return err
		}
	}
}

func (q checks) addHooks() error {
	b, err := q.body()
	if err != nil {
		return err
	}
	var list monitor.HookList
	if err := json.Unmarshal(b, &list); err != nil {
		return invalid(err)
	}
	if list.Type != q.rest[1] {
		return invalid(fmt.Errorf("the hooks of type %q do not match %q in the path", list.Type, q.rest[1]))
	}
	return q.change(func(c *monitor.CheckConfig) error {
		for i, l := range c.CheckHooks {
			if l.Type == list.Type {
				c.CheckHooks[i] = list
				return nil
			}
		}
		c.CheckHooks = append(c.CheckHooks, list)
		return nil
	})
}

func (q checks) removeHook() error {
	typ, hook := q.rest[1], q.rest[3]
	return q.change(func(c *monitor.CheckConfig) error {
		for i, l := range c.CheckHooks {
			at := slices.Index(l.Hooks, hook)
			if l.Type != typ || at < 0 {
				continue
			}
			l.Hooks = slices.Delete(slices.Clone(l.Hooks), at, at+1)
			c.CheckHooks[i] = l
			if len(l.Hooks) == 0 {
				c.CheckHooks = slices.Delete(c.CheckHooks, i, i+1)
			}
			return nil
		}
		return errkind.Errorf(errkind.NotFound, "check %q has no hook %q of type %q", q.name, hook, typ)
	})
}
