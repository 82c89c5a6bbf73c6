package rows

import (
	"encoding/json"
	"errors"
	"fmt"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/kit/errkind"
)

// MaxRegistrations bounds one list of registrations: more would hold up the log.
const MaxRegistrations = 4096

// WireList decodes a JSON array whose elements are decoded one by one.
func (q *Request) WireList() ([]json.RawMessage, error) {
	b, err := q.Body(q.Limits.ListBytes)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := bodies.Decode(b, &list); err != nil {
		return nil, err
	}
	if len(list) > MaxRegistrations {
		return nil, errkind.Errorf(errkind.TooLarge, "the list has %d registrations, at most %d are taken at once: send several lists", len(list), MaxRegistrations)
	}
	return list, nil
}

// At says which element of a list an error is about.
func At(i int, err error) error {
	var e *answer.Error
	if errors.As(err, &e) { // the contract's 500 for a single one that is incomplete
		return answer.Invalidf("%s (registration %d)", e.Text, i)
	}
	return errkind.New(errkind.Of(err), fmt.Sprintf("%s (registration %d)", errkind.Text(err), i))
}
