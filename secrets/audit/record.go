package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"slices"
	"strconv"
	"sync"

	"corbel.dev/corbel/kit/nesting"
)

// record is an entry's JSON with holes where secrets belong, which each device fills in its own way.
type record struct {
	text  []byte // JSON but for the secrets
	plain []byte // the secrets, one after the other
	marks []mark
}

type markKind uint8

const (
	secretMark   markKind = iota // of text at a place: from..to of plain
	accessorMark                 // the same, which a device may be told to show
	listMark                     // text from at to end is a list of count, which a device may be told to leave out
)

type mark struct {
	kind     markKind
	at       int
	from, to int
	end      int
	count    int
}

func (r *record) reset() { r.text, r.plain, r.marks = r.text[:0], r.plain[:0], r.marks[:0] }

// secret leaves a hole for a string.
func (r *record) secret(kind markKind, s string) {
	from := len(r.plain)
	r.plain = append(r.plain, s...)
	r.marks = append(r.marks, mark{kind: kind, at: len(r.text), from: from, to: len(r.plain)})
}

// hasher makes a device's keyed hashes. Its state is kept, so that one costs two blocks of SHA-256 and not four.
type hasher struct{ pool sync.Pool }

func newHasher(salt []byte) *hasher {
	return &hasher{sync.Pool{New: func() any { return hmac.New(sha256.New, salt) }}}
}

const hashPrefix = "hmac-sha256:"

func (h *hasher) append(out, plain []byte) []byte {
	mac, _ := h.pool.Get().(hash.Hash)
	mac.Reset()
	mac.Write(plain)
	var sum [sha256.Size]byte
	out = hex.AppendEncode(append(out, hashPrefix...), mac.Sum(sum[:0]))
	h.pool.Put(mac)
	return out
}

// render appends the record as a device writes it, with its line's end.
func (r *record) render(out []byte, d *Device) []byte {
	out = append(out, d.cfg.prefix...)
	if !d.cfg.jsonx {
		return append(r.fill(out, d), '\n')
	}
	plain := r.fill(nil, d)
	defer clear(plain)
	out, err := appendJSONx(out, plain)
	if err != nil { // what fill makes is JSON: better the entry in another form than none
		out = append(out, plain...)
	}
	return append(out, '\n')
}

// fill appends the record with what the device shows in its holes.
func (r *record) fill(out []byte, d *Device) []byte {
	at := 0
	for i := range r.marks {
		m := &r.marks[i]
		if m.at < at {
			continue // in a list that was left out
		}
		out = append(out, r.text[at:m.at]...)
		at = m.at
		switch {
		case m.kind == listMark:
			if d.cfg.elideLists {
				out, at = strconv.AppendInt(out, int64(m.count), 10), m.end
			}
		case d.cfg.raw || (m.kind == accessorMark && !d.cfg.hashAccessor):
			out = appendQuoted(out, string(r.plain[m.from:m.to]))
		default:
			out = append(d.hash.append(append(out, '"'), r.plain[m.from:m.to]), '"')
		}
	}
	return append(out, r.text[at:]...)
}

func appendQuoted(out []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				return append(out, `""`...) // a string: cannot be
			}
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// maxDepth bounds how deep data may nest to be shown, as requests are bounded.
const maxDepth = 64

// data appends a JSON value with each string in it made a secret, but below the names in clear. What is no JSON is
// shown as null: nothing of it leaves. lists says that "keys" and "key_info" at the top are a list's.
func (r *record) data(raw []byte, clear []string, lists bool) {
	if nesting.Deeper(raw, maxDepth) > 0 || !json.Valid(raw) {
		r.text = append(r.text, "null"...)
		return
	}
	w := walker{record: r, in: raw, clear: clear, lists: lists}
	w.value(false, 0)
}

// walker copies valid JSON into a record.
type walker struct {
	*record
	in    []byte
	i     int
	clear []string
	lists bool
}

func (w *walker) space() {
	for w.i < len(w.in) && (w.in[w.i] == ' ' || w.in[w.i] == '\n' || w.in[w.i] == '\t' || w.in[w.i] == '\r') {
		w.i++
	}
}

// str reads a string and returns it as it stands, with its quotes.
func (w *walker) str() []byte {
	from := w.i
	for w.i++; w.in[w.i] != '"'; w.i++ {
		if w.in[w.i] == '\\' {
			w.i++
		}
	}
	w.i++
	return w.in[from:w.i]
}

func unquoted(raw []byte) string {
	if !slices.Contains(raw, '\\') {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // was found valid
	return s
}

// value copies one value and returns how many members it has.
func (w *walker) value(clear bool, depth int) (count int) {
	w.space()
	switch c := w.in[w.i]; c {
	case '"':
		if raw := w.str(); clear {
			w.text = append(w.text, raw...)
		} else {
			w.secret(secretMark, unquoted(raw))
		}
	case '{', '[':
		return w.members(c, clear, depth+1)
	default:
		from := w.i
		for w.i < len(w.in) && !slices.Contains([]byte(",]} \n\t\r"), w.in[w.i]) {
			w.i++
		}
		w.text = append(w.text, w.in[from:w.i]...)
	}
	return 0
}

func (w *walker) members(open byte, clear bool, depth int) (count int) {
	w.text = append(w.text, open)
	w.i++
	for {
		w.space()
		if c := w.in[w.i]; c == '}' || c == ']' {
			w.text = append(w.text, c)
			w.i++
			return count
		} else if c == ',' {
			w.text = append(w.text, c)
			w.i++
			continue
		}
		count++
		if open == '[' {
			w.value(clear, depth)
			continue
		}
		raw := w.str()
		name := unquoted(raw)
		w.space()
		w.i++ // the colon
		w.text = append(append(w.text, raw...), ':')
		if w.lists && depth == 1 && (name == "keys" || name == "key_info") {
			at := len(w.marks)
			w.marks = append(w.marks, mark{kind: listMark, at: len(w.text)})
			n := w.value(clear || slices.Contains(w.clear, name), depth)
			w.marks[at].end, w.marks[at].count = len(w.text), n
			continue
		}
		w.value(clear || slices.Contains(w.clear, name), depth)
	}
}
