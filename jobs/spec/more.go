package spec

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// ofText makes a function of texts.
func ofText(result cty.Type, params []string, f func(args []string) (cty.Value, error)) function.Function {
	spec := &function.Spec{Type: function.StaticReturnType(result),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			texts := make([]string, len(args))
			for i, a := range args {
				texts[i] = a.AsString()
			}
			return f(texts)
		}}
	for _, name := range params {
		spec.Params = append(spec.Params, function.Parameter{Name: name, Type: cty.String})
	}
	return function.New(spec)
}

// mapped makes a function from a text to a text.
func mapped(f func(string) string) function.Function {
	return ofText(cty.String, []string{"text"}, func(args []string) (cty.Value, error) {
		return cty.StringVal(f(args[0])), nil
	})
}

// tested makes a function from two texts to a bool.
func tested(f func(text, part string) bool) function.Function {
	return ofText(cty.Bool, []string{"text", "part"}, func(args []string) (cty.Value, error) {
		return cty.BoolVal(f(args[0], args[1])), nil
	})
}

func plainText() map[string]function.Function {
	return map[string]function.Function{
		"startswith": tested(strings.HasPrefix), "endswith": tested(strings.HasSuffix),
		"strcontains": tested(strings.Contains), "urlencode": mapped(url.QueryEscape),
		"basename": mapped(path.Base), "dirname": mapped(path.Dir),
		"base64encode": mapped(func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }),
		"base64decode": ofText(cty.String, []string{"text"}, func(args []string) (cty.Value, error) {
			data, err := base64.StdEncoding.DecodeString(args[0])
			if err != nil {
				return cty.NilVal, errors.New("the text is not base64")
			}
			if !utf8.Valid(data) {
				return cty.NilVal, errors.New("what is in the base64 is not text")
			}
			return cty.StringVal(string(data)), nil
		}),
	}
}

// hashes are fingerprints of texts. MD5 and SHA-1 are there because job files use them, for no secret.
func hashes() map[string]function.Function {
	return map[string]function.Function{
		"md5":    mapped(func(s string) string { h := md5.Sum([]byte(s)); return hex.EncodeToString(h[:]) }),
		"sha1":   mapped(func(s string) string { h := sha1.Sum([]byte(s)); return hex.EncodeToString(h[:]) }),
		"sha256": mapped(func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }),
		"sha512": mapped(func(s string) string { h := sha512.Sum512([]byte(s)); return hex.EncodeToString(h[:]) }),
		"uuidv5": ofText(cty.String, []string{"namespace", "name"}, func(args []string) (cty.Value, error) {
			space, ok := map[string]uuid.UUID{"dns": uuid.NameSpaceDNS, "url": uuid.NameSpaceURL, "oid": uuid.NameSpaceOID,
				"x500": uuid.NameSpaceX500}[args[0]]
			if !ok {
				var err error
				if space, err = uuid.Parse(args[0]); err != nil {
					return cty.NilVal, errors.New("the namespace is dns, url, oid, x500 or a UUID")
				}
			}
			return cty.StringVal(uuid.NewSHA1(space, []byte(args[1])).String()), nil
		}),
	}
}

// outside are functions of what Options bring in.
func (p *parser) outside() map[string]function.Function {
	return map[string]function.Function{
		"timestamp": ofText(cty.String, nil, func([]string) (cty.Value, error) {
			return cty.StringVal(p.o.Now.UTC().Format(time.RFC3339)), nil
		}),
		"uuidv4": ofText(cty.String, nil, func([]string) (cty.Value, error) {
			if p.o.Random == nil {
				return cty.NilVal, errors.New("there is no chance here")
			}
			id, err := uuid.NewRandomFromReader(p.o.Random)
			return cty.StringVal(id.String()), err
		}),
		"file": ofText(cty.String, []string{"path"}, func(args []string) (cty.Value, error) {
			if p.o.ReadFile == nil {
				return cty.NilVal, errors.New("files are not read here: parse the job where its files are")
			}
			data, err := p.o.ReadFile(args[0])
			switch {
			case err != nil:
				return cty.NilVal, err
			case len(data) > p.o.MaxBytes:
				return cty.NilVal, fmt.Errorf("%s has %d bytes: at most %d are read", args[0], len(data), p.o.MaxBytes)
			case !utf8.Valid(data):
				return cty.NilVal, fmt.Errorf("%s is not text", args[0])
			}
			return cty.StringVal(string(data)), nil
		}),
	}
}

// addresses are functions on networks.
func addresses() map[string]function.Function {
	number := function.Parameter{Name: "number", Type: cty.Number}
	prefix := function.Parameter{Name: "prefix", Type: cty.String}
	return map[string]function.Function{
		"cidrnetmask": ofText(cty.String, []string{"prefix"}, func(args []string) (cty.Value, error) {
			n, err := netip.ParsePrefix(args[0])
			if err != nil || !n.Addr().Is4() {
				return cty.NilVal, errors.New("want an IPv4 prefix such as 10.0.0.0/8")
			}
			var mask [4]byte
			binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-n.Bits()))
			return cty.StringVal(netip.AddrFrom4(mask).String()), nil
		}),
		"cidrhost": function.New(&function.Spec{Params: []function.Parameter{prefix, number},
			Type: function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				n, err := netip.ParsePrefix(args[0].AsString())
				host, ok := whole(args[1].AsBigFloat())
				if err != nil || !ok {
					return cty.NilVal, errors.New("want a prefix such as 10.0.0.0/8 and a whole number")
				}
				a, ok := within(n, n.Addr().BitLen(), host)
				if !ok {
					return cty.NilVal, fmt.Errorf("%s has no host %d", n, host)
				}
				return cty.StringVal(a.String()), nil
			}}),
		"cidrsubnet": function.New(&function.Spec{
			Params: []function.Parameter{prefix, {Name: "newbits", Type: cty.Number}, number},
			Type:   function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				n, err := netip.ParsePrefix(args[0].AsString())
				more, ok := whole(args[1].AsBigFloat())
				number, fits := whole(args[2].AsBigFloat())
				if err != nil || !ok || !fits || more < 0 || more > int64(n.Addr().BitLen()-n.Bits()) {
					return cty.NilVal, errors.New("want a prefix such as 10.0.0.0/8, new bits that it has room for, and a number")
				}
				bits := n.Bits() + int(more)
				a, ok := within(n, bits, number)
				if !ok || number < 0 {
					return cty.NilVal, fmt.Errorf("%s has no subnet %d of %d bits", n, number, bits)
				}
				return cty.StringVal(netip.PrefixFrom(a, bits).String()), nil
			}}),
	}
}

// within is the address in n whose bits from n's length to upto are number; a negative one counts from the end.
func within(n netip.Prefix, upto int, number int64) (netip.Addr, bool) {
	room := upto - n.Bits()
	if number < 0 && room < 64 {
		number += int64(1) << min(room, 62)
	}
	if number < 0 || room < 63 && number >= int64(1)<<room {
		return netip.Addr{}, false
	}
	a := n.Masked().Addr().AsSlice()
	for bit := upto - 1; number > 0; bit-- { // from the last bit to the front
		a[bit/8] |= byte(number&1) << (7 - bit%8)
		number >>= 1
	}
	addr, _ := netip.AddrFromSlice(a)
	return addr, true
}
