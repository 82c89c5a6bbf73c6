package consulapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/errkind"
)

// Intentions by ID are for clients that are older than config entries. The ID is kept with the source in the
// destination's entry, so that such an intention is seen and changed by both ways.
var intentionIDRoutes = []route{
	{"POST", "/v1/connect/intentions", write, acl.Intention, intentionCreate},
	{"GET", intentionIDPattern, read, acl.Intention, intentionByID},
	{"PUT", intentionIDPattern, write, acl.Intention, intentionUpdate},
	{"DELETE", intentionIDPattern, write, acl.Intention, intentionDrop},
}

const intentionIDPattern = "/v1/connect/intentions/"

var errNoIntention = answer.Fail(http.StatusNotFound, "Intention not found")

// intentionBody reads an intention of a client that names both services in the body.
func (q *request) intentionBody() (in wireIntention, err error) {
	if err := q.decode(&in); err != nil {
		return in, err
	}
	for _, v := range []string{in.SourceNS, in.DestinationNS, in.SourcePartition, in.DestinationPartition} {
		if v != "" && v != "default" {
			return in, answer.Invalidf("Namespaces and partitions other than default are a Consul Enterprise feature")
		}
	}
	switch {
	case in.SourceName == "":
		return in, answer.Invalidf("SourceName must be set")
	case in.DestinationName == "":
		return in, answer.Invalidf("DestinationName must be set")
	case in.SourcePeer != "":
		return in, answer.Invalidf("SourcePeer cannot be set on intentions with an ID: use /v1/connect/intentions/exact")
	}
	return in, nil
}

func intentionCreate(q *request) error {
	in, err := q.intentionBody()
	if err != nil {
		return err
	}
	if err := q.allow(acl.Intention, in.DestinationName, acl.Write); err != nil {
		return err
	}
	if in.ID != "" {
		return answer.Invalidf("ID must be empty when creating a new intention")
	}
	in.ID = uuid.NewString()
	next := q.sourceOf(&in)
	err = q.editIntentions(in.DestinationName, func(e *entry.Intentions) (bool, error) {
		if slices.ContainsFunc(e.Sources, func(s *entry.Source) bool { return s.Name == in.SourceName && s.Peer == "" }) {
			return false, answer.Fail(http.StatusInternalServerError, "duplicate intention found: "+in.SourceName+" => "+in.DestinationName)
		}
		e.Sources = append(e.Sources, next)
		return true, nil
	})
	if err != nil {
		return err
	}
	return q.replyValue(struct{ ID string }{in.ID})
}

// sourceOf is the intention as its destination's entry holds it.
func (q *request) sourceOf(in *wireIntention) *entry.Source {
	now := q.api.cfg.Clock.Now().UTC()
	return &entry.Source{Name: in.SourceName, Action: strings.ToLower(in.Action), Permissions: in.Permissions, Type: in.SourceType,
		Description: in.Description, LegacyID: in.ID, LegacyMeta: in.Meta, LegacyCreateTime: &now, LegacyUpdateTime: &now}
}

// intentionWithID finds an intention by the ID in the path.
func (q *request) intentionWithID(st *catalog.State) (*wireIntention, error) {
	if _, err := uuid.Parse(q.rest); err != nil || len(q.rest) != 36 {
		return nil, answer.Invalidf("failed intention lookup: %q is no UUID", q.rest)
	}
	found := allIntentions(st, func(in *wireIntention) bool { return in.ID == q.rest })
	if len(found) == 0 {
		return nil, errNoIntention
	}
	return &found[0], nil
}

func intentionByID(q *request) error {
	st, err := q.readIntentions()
	if err != nil {
		return err
	}
	in, err := q.intentionWithID(st)
	if err != nil {
		return err
	}
	if err := q.allow(acl.Intention, in.DestinationName, acl.Read); err != nil {
		return err
	}
	return q.replyValue(in)
}

// changeByID edits the entry in which the intention is, for who may write it.
func (q *request) changeByID(edit func(e *entry.Intentions, at int) error) error {
	if _, err := q.api.cfg.Registry.Read(q.r.Context(), registry.Default); err != nil {
		return err
	}
	old, err := q.intentionWithID(q.api.cfg.Registry.State())
	if err != nil {
		return err
	}
	if err := q.allow(acl.Intention, old.DestinationName, acl.Write); err != nil {
		return err
	}
	return q.editIntentions(old.DestinationName, func(e *entry.Intentions) (bool, error) {
		at := slices.IndexFunc(e.Sources, func(s *entry.Source) bool { return s.LegacyID == q.rest })
		if at < 0 {
			return false, errNoIntention // somebody was faster
		}
		return true, edit(e, at)
	})
}

func intentionUpdate(q *request) error {
	in, err := q.intentionBody()
	if err != nil {
		return err
	}
	in.ID = q.rest
	next := q.sourceOf(&in)
	err = q.changeByID(func(e *entry.Intentions, at int) error {
		if e.Name != in.DestinationName {
			return errkind.New(errkind.Invalid, "Cannot modify Destination of an intention once it exists: delete it and create another")
		}
		if i := slices.IndexFunc(e.Sources, func(s *entry.Source) bool { return s.Name == in.SourceName && s.Peer == "" }); i >= 0 && i != at {
			return answer.Fail(http.StatusInternalServerError, "duplicate intention found: "+in.SourceName+" => "+in.DestinationName)
		}
		next.LegacyCreateTime = e.Sources[at].LegacyCreateTime
		e.Sources[at] = next
		return nil
	})
	if err != nil {
		return err
	}
	return q.replyValue(struct{ ID string }{in.ID})
}

func intentionDrop(q *request) error {
	err := q.changeByID(func(e *entry.Intentions, at int) error {
		e.Sources = slices.Delete(e.Sources, at, at+1)
		return nil
	})
	if err != nil {
		return err
	}
	return q.replyBool(true)
}
