package configrows

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

const intentionIDPattern = "/v1/connect/intentions/"

var errNoIntention = answer.Fail(http.StatusNotFound, "Intention not found")

// intentionBody reads an intention of a client that names both services in the body.
func intentionBody(q *rows.Request) (in wireIntention, err error) {
	if err := q.Decode(&in); err != nil {
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

func intentionCreate(q *rows.Request) error {
	in, err := intentionBody(q)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, in.DestinationName, acl.Write); err != nil {
		return err
	}
	if in.ID != "" {
		return answer.Invalidf("ID must be empty when creating a new intention")
	}
	in.ID = uuid.NewString()
	next := sourceOf(q, &in)
	err = editIntentions(q, in.DestinationName, func(e *entry.Intentions) (bool, error) {
		if slices.ContainsFunc(e.Sources, func(s *entry.Source) bool { return s.Name == in.SourceName && s.Peer == "" }) {
			return false, answer.Fail(http.StatusInternalServerError, "duplicate intention found: "+in.SourceName+" => "+
				in.DestinationName)
		}
		e.Sources = append(e.Sources, next)
		return true, nil
	})
	if err != nil {
		return err
	}
	return q.ReplyValue(struct{ ID string }{in.ID})
}

// sourceOf is the intention as its destination's entry holds it.
func sourceOf(q *rows.Request, in *wireIntention) *entry.Source {
	now := q.Clock.Now().UTC()
	return &entry.Source{Name: in.SourceName, Action: strings.ToLower(in.Action), Permissions: in.Permissions,
		Type:        in.SourceType,
		Description: in.Description, LegacyID: in.ID, LegacyMeta: in.Meta, LegacyCreateTime: &now, LegacyUpdateTime: &now}
}

// intentionWithID finds an intention by the ID in the path.
func intentionWithID(q *rows.Request, st *statestore.State) (*wireIntention, error) {
	if _, err := uuid.Parse(q.Rest); err != nil || len(q.Rest) != 36 {
		return nil, answer.Invalidf("failed intention lookup: %q is no UUID", q.Rest)
	}
	found := allIntentions(st, func(in *wireIntention) bool { return in.ID == q.Rest })
	if len(found) == 0 {
		return nil, errNoIntention
	}
	return &found[0], nil
}

func intentionByID(q *rows.Request) error {
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	in, err := intentionWithID(q, st)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, in.DestinationName, acl.Read); err != nil {
		return err
	}
	return q.ReplyValue(in)
}

// changeByID edits the entry in which the intention is, for who may write it.
func changeByID(q *rows.Request, edit func(e *entry.Intentions, at int) error) error {
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return err
	}
	old, err := intentionWithID(q, q.Registry.State())
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, old.DestinationName, acl.Write); err != nil {
		return err
	}
	return editIntentions(q, old.DestinationName, func(e *entry.Intentions) (bool, error) {
		at := slices.IndexFunc(e.Sources, func(s *entry.Source) bool { return s.LegacyID == q.Rest })
		if at < 0 {
			return false, errNoIntention // somebody was faster
		}
		return true, edit(e, at)
	})
}

func intentionUpdate(q *rows.Request) error {
	in, err := intentionBody(q)
	if err != nil {
		return err
	}
	in.ID = q.Rest
	next := sourceOf(q, &in)
	err = changeByID(q, func(e *entry.Intentions, at int) error {
		if e.Name != in.DestinationName {
			return errkind.New(errkind.Invalid, "Cannot modify Destination of an intention once it exists: delete it and "+
				"create another")
		}
		if i := slices.IndexFunc(e.Sources, func(s *entry.Source) bool {
			return s.Name == in.SourceName &&
				s.Peer == ""
		}); i >= 0 && i != at {
			return answer.Fail(http.StatusInternalServerError, "duplicate intention found: "+in.SourceName+" => "+
				in.DestinationName)
		}
		next.LegacyCreateTime = e.Sources[at].LegacyCreateTime
		e.Sources[at] = next
		return nil
	})
	if err != nil {
		return err
	}
	return q.ReplyValue(struct{ ID string }{in.ID})
}

func intentionDrop(q *rows.Request) error {
	err := changeByID(q, func(e *entry.Intentions, at int) error {
		e.Sources = slices.Delete(e.Sources, at, at+1)
		return nil
	})
	if err != nil {
		return err
	}
	return q.ReplyBool(true)
}
