package audit

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
)

// jsonxHead begins an entry in IBM's JSONx: JSON as XML, a line an entry.
const jsonxHead = `<json:object xmlns:json="http://www.ibm.com/xmlns/prod/2009/jsonx">`

// appendJSONx appends a JSON object as JSONx. What is no JSON is an error, and nothing is appended then.
func appendJSONx(out, object []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return out, errNobody
	}
	w := jsonx{dec: dec, out: append(out, jsonxHead...)}
	if err := w.members('{'); err != nil {
		return out, err
	}
	return append(w.out, "</json:object>"...), nil
}

type jsonx struct {
	dec *json.Decoder
	out []byte
}

// members writes what an object or a list holds, up to its end.
func (w *jsonx) members(open json.Delim) error {
	for w.dec.More() {
		name := ""
		if open == '{' {
			t, err := w.dec.Token()
			if err != nil {
				return err
			}
			text, _ := t.(string) // of an object's member it is one
			name = ` name="` + escaped(text) + `"`
		}
		if err := w.value(name); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func (w *jsonx) value(name string) error {
	t, err := w.dec.Token()
	if err != nil {
		return err
	}
	put := func(kind, text string) { w.out = append(w.out, "<json:"+kind+name+">"+text+"</json:"+kind+">"...) }
	switch v := t.(type) {
	case json.Delim:
		kind := "object"
		if v == '[' {
			kind = "array"
		}
		w.out = append(w.out, "<json:"+kind+name+">"...)
		if err := w.members(v); err != nil {
			return err
		}
		w.out = append(w.out, "</json:"+kind+">"...)
	case string:
		put("string", escaped(v))
	case json.Number:
		put("number", v.String())
	case bool:
		text := "false"
		if v {
			text = "true"
		}
		put("boolean", text)
	case nil:
		w.out = append(w.out, "<json:null"+name+" />"...)
	default:
		return io.ErrUnexpectedEOF
	}
	return nil
}

func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}
