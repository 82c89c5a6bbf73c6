package snapfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"unicode/utf8"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// framer cuts a stream into MessagePack values without building them, so that what is
// given to the decoder is whole and of a size that is known: the lengths in a value are claims.
type framer struct {
	in     *bufio.Reader
	values int // how many more values may come, over all calls
	limit  int // bytes of one value
	buf    []byte
}

var (
	errTooDeep    = fmt.Errorf("values nest deeper than %d levels", maxDepth)
	errTooMany    = fmt.Errorf("there are more than %d values: bring this state over by the API, with --from", maxValues)
	errTooLarge   = fmt.Errorf("an object has more than %d bytes", maxObjectBytes)
	errNotMsgpack = errors.New("not MessagePack")
)

// next returns the bytes of the next value. They are overwritten by the call after.
func (f *framer) next() ([]byte, error) {
	f.buf = f.buf[:0]
	if err := f.value(0); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return f.buf, nil
}

// take copies n bytes of the input. It grows with what is there, not with what was claimed.
func (f *framer) take(n int) ([]byte, error) {
	at := len(f.buf)
	if n > f.limit-at {
		return nil, errTooLarge
	}
	for n > 0 {
		part := min(n, 64<<10)
		from := len(f.buf)
		f.buf = append(f.buf, make([]byte, part)...)
		if _, err := io.ReadFull(f.in, f.buf[from:]); err != nil {
			return nil, err
		}
		n -= part
	}
	return f.buf[at:], nil
}

// length reads a length of size bytes.
func (f *framer) length(size int) (int, error) {
	b, err := f.take(size)
	if err != nil {
		return 0, err
	}
	switch size {
	case 1:
		return int(b[0]), nil
	case 2:
		return int(binary.BigEndian.Uint16(b)), nil
	}
	return int(binary.BigEndian.Uint32(b)), nil
}

// form is how a value goes on after its first byte.
type form struct {
	skip  int // bytes that follow
	size  int // bytes of a length that follows
	extra int // bytes beside those that the length counts
	items int // values in each of what is counted; -1 counts bytes
	count int // of a collection whose length is in the first byte
}

// formOf is the table of the format.
func formOf(c byte) (form, bool) {
	switch {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		return form{}, true
	case c <= 0x8f:
		return form{count: 2 * int(c&0x0f)}, true
	case c <= 0x9f:
		return form{count: int(c & 0x0f)}, true
	case c <= 0xbf:
		return form{skip: int(c & 0x1f)}, true
	case c >= 0xc4 && c <= 0xc6: // bin
		return form{size: 1 << (c - 0xc4), items: -1}, true
	case c >= 0xc7 && c <= 0xc9: // ext
		return form{size: 1 << (c - 0xc7), extra: 1, items: -1}, true
	case c == 0xca, c == 0xcb: // float
		return form{skip: 4 << (c - 0xca)}, true
	case c >= 0xcc && c <= 0xcf: // uint
		return form{skip: 1 << (c - 0xcc)}, true
	case c >= 0xd0 && c <= 0xd3: // int
		return form{skip: 1 << (c - 0xd0)}, true
	case c >= 0xd4 && c <= 0xd8: // fixext
		return form{skip: 1 + 1<<(c-0xd4)}, true
	case c >= 0xd9 && c <= 0xdb: // str
		return form{size: 1 << (c - 0xd9), items: -1}, true
	case c == 0xdc, c == 0xdd: // array
		return form{size: 2 << (c - 0xdc), items: 1}, true
	case c == 0xde, c == 0xdf: // map
		return form{size: 2 << (c - 0xde), items: 2}, true
	}
	return form{}, false
}

func (f *framer) value(depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if f.values--; f.values < 0 {
		return errTooMany
	}
	b, err := f.take(1)
	if err != nil {
		return err
	}
	how, ok := formOf(b[0])
	if !ok {
		return errNotMsgpack
	}
	items := how.count
	if how.size > 0 {
		n, err := f.length(how.size)
		if err != nil {
			return err
		}
		if how.items < 0 {
			how.skip = n + how.extra
		} else {
			items = n * how.items
		}
	}
	if _, err := f.take(how.skip); err != nil {
		return err
	}
	for range items {
		if err := f.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{}
	h.MapType = reflect.TypeFor[map[string]any]()
	h.RawToString = true // names and texts; bytes that are marked as such stay bytes
	h.MaxDepth = maxDepth + 2
	return h
}()

var errNoObject = errors.New("not an object")

// decode reads one framed value, which must be an object. An object whose encoding is wrapped in
// bytes, a kind's name and then its fields, is unwrapped: config entries are written like that.
func decode(raw []byte) (object, error) {
	d := codec.NewDecoderBytes(raw, handle)
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case string, []byte:
		return wrapped(bytesOf(v))
	}
	return nil, errNoObject
}

func wrapped(raw []byte) (object, error) {
	// its lengths are claims too
	f := framer{in: bufio.NewReader(bytes.NewReader(raw)), values: maxDepth << 14, limit: maxObjectBytes}
	var name string
	head, err := f.next()
	if err != nil || codec.NewDecoderBytes(head, handle).Decode(&name) != nil {
		return nil, errNoObject
	}
	body, err := f.next()
	if err != nil {
		return nil, err
	}
	var o object
	if err := codec.NewDecoderBytes(body, handle).Decode(&o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errNoObject
	}
	if _, has := o["Kind"]; !has {
		o["Kind"] = name
	}
	return o, nil
}

// jsonable is v as JSON can say it: bytes that are text become text.
func jsonable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = jsonable(inner)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = jsonable(inner)
		}
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return v // base64, as encoding/json says bytes
	case float32:
		return finite(float64(v))
	case float64:
		return finite(v)
	}
	return v
}

func finite(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}
