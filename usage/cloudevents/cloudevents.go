// Package cloudevents decodes events that are written in JSON: Corbel's own form, as an array, as newline-delimited
// JSON or as one object, and CloudEvents 1.0 in structured, batch and binary mode.
//
// One wrong event does not spoil the others: each has its own error, which names the field. Texts share memory with
// the input, so a body costs a few slices and no copy. Identities are taken byte by byte: a number is the text that
// was sent, and nothing is normalised. Sizes are bounded by the caller (the body) and by usage.MaxEvents; depth by
// 32. Pure functions, for any goroutine.
package cloudevents

import (
	"cmp"
	"encoding/base64"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/usage"
)

// The media types.
const (
	Structured = "application/cloudevents+json"
	Batched    = "application/cloudevents-batch+json"
)

// Item is one event of a body, or why it is none.
type Item struct {
	usage.Event
	// Data is the data of a CloudEvent in JSON as it came, for Paths; "" where there is none.
	Data string
	Err  error
}

// ValueField says which field of a CloudEvent's flat data is the quantity of a product; "" for none.
type ValueField func(product string) string

// Decode reads a body by its media type: CloudEvents where it says so, else Corbel's own form. The error is about the
// body as a whole.
func Decode(contentType string, body []byte, field ValueField) ([]Item, error) {
	media, _, err := mime.ParseMediaType(cmp.Or(contentType, "application/json"))
	if err != nil {
		return nil, errkind.New(errkind.Invalid, "Content-Type: is no media type")
	}
	one := decodePlain
	switch {
	case media == Structured || media == Batched:
		one = func(text string, to *Item) error { return decodeCloud(text, to, field) }
	case strings.HasPrefix(media, "application/cloudevents"):
		return nil, errkind.Errorf(errkind.Invalid, "Content-Type: %s is not taken: use %s or %s", media, Structured, Batched)
	}
	s := scanner{text: string(body)}
	array := s.peek() == '['
	switch {
	case media == Batched && !array:
		return nil, errkind.New(errkind.Invalid, "a batch of CloudEvents is an array")
	case media == Structured && array:
		return nil, errkind.Errorf(errkind.Invalid, "a structured CloudEvent is an object: an array is %s", Batched)
	case array:
		s.at++
		return s.array(one)
	}
	return s.lines(one)
}

type decoder func(text string, to *Item) error

var errTooMany = errkind.Errorf(errkind.TooLarge, "more than %d events in a batch", usage.MaxEvents)

func (s *scanner) array(one decoder) (items []Item, err error) {
	for first := true; !s.take(']'); first = false {
		if !first && !s.take(',') {
			return nil, errkind.Errorf(errkind.Invalid, "the array breaks off behind %d events", len(items))
		}
		text, err := s.value(maxDepth)
		if err != nil {
			return nil, errkind.Errorf(errkind.Invalid, "event %d: %w", len(items), err)
		}
		if len(items) == usage.MaxEvents {
			return nil, errTooMany
		}
		items = append(items, Item{})
		last := &items[len(items)-1]
		last.Err = one(text, last)
	}
	if s.peek() != 0 || s.at < len(s.text) {
		return nil, errkind.New(errkind.Invalid, "there is something behind the array")
	}
	return items, nil
}

// lines reads values one after the other. What is no JSON costs the rest of its line alone.
func (s *scanner) lines(one decoder) (items []Item, err error) {
	for s.space(); s.at < len(s.text); s.space() {
		if len(items) == usage.MaxEvents {
			return nil, errTooMany
		}
		items = append(items, Item{})
		last := &items[len(items)-1]
		from := s.at
		text, err := s.value(maxDepth)
		if err != nil {
			last.Err = usage.Wrong("event", "%s", err)
			s.at = len(s.text)
			if end := strings.IndexByte(s.text[from:], '\n'); end >= 0 {
				s.at = from + end + 1
			}
			continue
		}
		last.Err = one(text, last)
	}
	return items, nil
}

// decodePlain reads Corbel's own form.
func decodePlain(text string, to *Item) error {
	e := &to.Event
	err := object(text, func(name, value string) (err error) {
		switch name {
		case "id":
			e.ID, err = textOf(name, value)
		case "source":
			e.Source, err = textOf(name, value)
		case "tenant":
			e.Tenant, err = textOf(name, value)
		case "product":
			e.Product, err = textOf(name, value)
		case "time":
			e.Time, err = timeOf(value)
		case "identity":
			e.Identity, err = fieldsOf(name, value)
		case "tags":
			e.Tags, err = fieldsOf(name, value)
		case "value":
			e.Value, err = quantityOf(name, value)
			e.HasValue = value != "null"
		default:
			err = usage.Wrong(name, "is no field of an event")
		}
		return err
	})
	return eventError(err, e)
}

// eventError adds what must be there, and where an event is no object.
func eventError(err error, e *usage.Event) error {
	if err != nil {
		if _, named := err.(*usage.FieldError); !named {
			return usage.Wrong("event", "%s", err)
		}
		return err
	}
	if e.Product == "" {
		return usage.Wrong("product", "is missing")
	}
	return nil
}

func textOf(field, value string) (string, error) {
	if value == "null" {
		return "", nil
	}
	if value[0] != '"' {
		return "", usage.Wrong(field, "must be a text")
	}
	return unquote(value), nil
}

func timeOf(value string) (int64, error) {
	if value == "null" {
		return 0, nil
	}
	if value[0] != '"' {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, usage.Wrong("time", "must be RFC 3339 or an integer of Unix nanoseconds")
		}
		return n, nil
	}
	return parseTime(unquote(value))
}

func parseTime(text string) (int64, error) {
	t, err := time.Parse(time.RFC3339, text) // reads fractions too
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05", text) // no offset: UTC
	}
	if err != nil {
		return 0, usage.Wrong("time", "%.40q is not RFC 3339", text)
	}
	if y := t.Year(); y < 1970 || y > 2261 { // what nanoseconds in 64 bits can tell
		return 0, usage.Wrong("time", "the year %d is not taken", y)
	}
	return t.UnixNano(), nil
}

func quantityOf(field, value string) (q usage.Quantity, err error) {
	text := value
	switch {
	case value == "null":
		return q, nil
	case value[0] == '"':
		text = unquote(value)
	}
	q, ok := usage.ParseQuantity(text)
	if !ok {
		return q, usage.Wrong(field, "must be an integer of at most %d digits", usage.MaxDigits)
	}
	return q, nil
}

// fieldsOf reads an object of plain values. Null is as if the field were missing; of two of a name the last counts.
func fieldsOf(field, value string) (list []usage.Field, err error) {
	if value == "null" {
		return nil, nil
	}
	err = object(value, func(name, value string) error {
		text, null, err := plain(field+"."+name, value)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(f usage.Field) bool { return f.Name == name })
		if !null {
			list = append(list, usage.Field{Name: name, Value: text})
		}
		return nil
	})
	if _, named := err.(*usage.FieldError); err != nil && !named {
		return nil, usage.Wrong(field, "%s", err)
	}
	return list, err
}

// plain is the text of a value that is a text, a number or a boolean.
func plain(field, value string) (text string, null bool, err error) {
	switch value[0] {
	case '"':
		return unquote(value), false, nil
	case '{', '[':
		return "", false, usage.Wrong(field, "must be a text, a number or a boolean")
	}
	return value, value == "null", nil
}

// cloud is what a CloudEvent has beside the event.
type cloud struct {
	version, media, data, base64 string
}

func decodeCloud(text string, to *Item, field ValueField) error {
	var c cloud
	e := &to.Event
	err := object(text, func(name, value string) (err error) {
		switch name {
		case "specversion":
			c.version, err = textOf(name, value)
		case "datacontenttype":
			c.media, err = textOf(name, value)
		case "id":
			e.ID, err = textOf(name, value)
		case "source":
			e.Source, err = textOf(name, value)
		case "type":
			e.Product, err = textOf(name, value)
		case "subject":
			e.Tenant, err = textOf(name, value)
		case "time":
			if e.Time, err = 0, nil; value != "null" {
				e.Time, err = timeOfCloud(value)
			}
		case "data":
			c.data = value
		case "data_base64":
			c.base64, err = textOf(name, value)
		}
		return err // extensions are for others
	})
	if err = eventError(err, e); err != nil {
		if e.Product == "" && strings.HasPrefix(err.Error(), "product:") {
			return usage.Wrong("type", "is missing")
		}
		return err
	}
	err = c.finish(e, field)
	to.Data = c.data
	return err
}

func timeOfCloud(value string) (int64, error) {
	if value[0] != '"' {
		return 0, usage.Wrong("time", "must be RFC 3339")
	}
	return parseTime(unquote(value))
}

func (c *cloud) finish(e *usage.Event, field ValueField) error {
	for _, must := range [...]struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Product}} {
		if must.value == "" {
			return usage.Wrong(must.name, "is missing")
		}
	}
	if c.version != "1.0" {
		return usage.Wrong("specversion", "%.20q is not 1.0", c.version)
	}
	if c.media != "" {
		media, _, err := mime.ParseMediaType(c.media)
		if err != nil || media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json") {
			return usage.Wrong("datacontenttype", "%.60q is not JSON", c.media)
		}
	}
	if c.base64 != "" {
		data, err := base64.StdEncoding.DecodeString(c.base64)
		if err != nil {
			return usage.Wrong("data_base64", "is no base64")
		}
		c.data = string(data)
		s := scanner{text: c.data}
		if _, err := s.value(maxDepth); err != nil || s.peek() != 0 || s.at < len(c.data) {
			return usage.Wrong("data_base64", "is no JSON")
		}
	}
	if data := strings.TrimSpace(c.data); data != "" && data != "null" {
		return decodeData(data, e, field)
	}
	return nil
}

// decodeData reads a CloudEvent's data: {"identity":{},"value":n,"tags":{}}, or flat fields, each of which may be
// part of the identity and a tag: the product names those that count.
func decodeData(data string, e *usage.Event, field ValueField) error {
	flat := true
	valueField := ""
	if field != nil {
		valueField = field(e.Product)
	}
	err := object(data, func(name, value string) error {
		if value[0] == '{' && (name == "identity" || name == "tags") {
			flat = false
		}
		return nil
	})
	if err != nil {
		return usage.Wrong("data", "%s", err)
	}
	return object(data, func(name, value string) (err error) {
		switch {
		case name == "identity" && !flat:
			e.Identity, err = fieldsOf("data.identity", value)
		case name == "tags" && !flat:
			e.Tags, err = fieldsOf("data.tags", value)
		case name == "value" || name == valueField:
			e.Value, err = quantityOf("data."+name, value)
			e.HasValue = value != "null"
		case flat && value[0] != '{' && value[0] != '[' && value != "null": // what is nested cannot be named by a product
			f := usage.Field{Name: name}
			f.Value, _, err = plain("data."+name, value)
			same := func(o usage.Field) bool { return o.Name == name }
			e.Identity = append(slices.DeleteFunc(e.Identity, same), f)
			e.Tags = append(slices.DeleteFunc(e.Tags, same), f)
		}
		return err
	})
}

// DecodeBinary reads a CloudEvent in binary mode: attributes are headers, the body is the data. header returns the
// value of a header, "" for none. ok is false where there is no CloudEvent in the headers.
func DecodeBinary(header func(name string) string, body []byte, field ValueField) (item Item, ok bool) {
	if header("Ce-Specversion") == "" {
		return item, false
	}
	attribute := func(name string) string {
		v := header("Ce-" + name)
		if decoded, err := url.PathUnescape(v); err == nil { // the HTTP binding has other characters percent-encoded
			return decoded
		}
		return v
	}
	e := &item.Event
	e.ID, e.Source, e.Product, e.Tenant = attribute("Id"), attribute("Source"), attribute("Type"), attribute("Subject")
	if at := attribute("Time"); at != "" {
		if e.Time, item.Err = parseTime(at); item.Err != nil {
			return item, true
		}
	}
	c := cloud{version: attribute("Specversion"), media: header("Content-Type"), data: string(body)}
	s := scanner{text: c.data}
	if s.peek() != 0 {
		if _, err := s.value(maxDepth); err != nil || s.peek() != 0 || s.at < len(c.data) {
			item.Err = usage.Wrong("data", "is no JSON")
			return item, true
		}
	}
	item.Err = c.finish(e, field)
	item.Data = c.data
	return item, true
}
