package bodies

import (
	"strconv"

	"corbel.dev/corbel/catalog"
)

// ParseRegister reads the body of a registration as programs write it: the contract's
// names in their own spelling, each once, plain ASCII without escapes, no null. It
// gives what encoding/json would, in a tenth of the time; false for anything else,
// which encoding/json then reads or refuses. The strings of in are parts of body.
func ParseRegister(body string, in *Register) bool {
	p := &plainJSON{text: body, ok: true}
	p.object(func(name string) int {
		switch name {
		case "Datacenter":
			return p.str(0, &in.Datacenter)
		case "ID":
			return p.str(1, &in.ID)
		case "Node":
			return p.str(2, &in.Node)
		case "Address":
			return p.str(3, &in.Address)
		case "TaggedAddresses":
			return p.strMap(4, &in.TaggedAddresses)
		case "NodeMeta":
			return p.strMap(5, &in.NodeMeta)
		case "SkipNodeUpdate":
			return p.boolean(6, &in.SkipNodeUpdate)
		case "Service":
			in.Service = &Service{}
			p.service(in.Service)
			return 7
		case "Check":
			in.Check = &Check{}
			p.check(in.Check)
			return 8
		case "Checks":
			p.list(func() {
				c := &Check{}
				p.check(c)
				in.Checks = append(in.Checks, c)
			})
			return 9
		}
		return unknownField
	})
	p.space()
	return p.ok && p.at == len(p.text)
}

func (p *plainJSON) service(s *Service) {
	p.object(func(name string) int {
		switch name {
		case "Kind":
			return p.str(0, &s.Kind)
		case "ID":
			return p.str(1, &s.ID)
		case "Service":
			return p.str(2, &s.Service)
		case "Tags":
			return p.strList(3, &s.Tags)
		case "Address":
			return p.str(4, &s.Address)
		case "TaggedAddresses":
			s.TaggedAddresses = map[string]catalog.ServiceAddress{}
			p.members(func(tag string) {
				var a catalog.ServiceAddress
				p.object(func(name string) int {
					switch name {
					case "Address":
						return p.str(0, &a.Address)
					case "Port":
						return p.integer(1, &a.Port)
					}
					return unknownField
				})
				s.TaggedAddresses[tag] = a
			})
			return 5
		case "Meta":
			return p.strMap(6, &s.Meta)
		case "Port":
			return p.integer(7, &s.Port)
		case "SocketPath":
			return p.str(8, &s.SocketPath)
		case "EnableTagOverride":
			return p.boolean(9, &s.EnableTagOverride)
		case "Weights":
			s.Weights = &catalog.Weights{}
			p.object(func(name string) int {
				switch name {
				case "Passing":
					return p.integer(0, &s.Weights.Passing)
				case "Warning":
					return p.integer(1, &s.Weights.Warning)
				}
				return unknownField
			})
			return 10
		}
		return unknownField
	})
}

func (p *plainJSON) check(c *Check) {
	p.object(func(name string) int {
		switch name {
		case "Node":
			return p.str(0, &c.Node)
		case "CheckID":
			return p.str(1, &c.CheckID)
		case "Name":
			return p.str(2, &c.Name)
		case "Status":
			return p.str(3, &c.Status)
		case "Notes":
			return p.str(4, &c.Notes)
		case "Output":
			return p.str(5, &c.Output)
		case "ServiceID":
			return p.str(6, &c.ServiceID)
		case "ServiceName":
			return p.str(7, &c.ServiceName)
		case "ServiceTags":
			return p.strList(8, &c.ServiceTags)
		case "Type":
			return p.str(9, &c.Type)
		case "Interval":
			return p.str(10, &c.Interval)
		case "Timeout":
			return p.str(11, &c.Timeout)
		case "ExposedPort":
			return p.integer(12, &c.ExposedPort)
		}
		return unknownField
	})
}

// plainJSON reads the plain kind of JSON. Once ok is false all that it gives is void.
type plainJSON struct {
	text string
	at   int
	ok   bool
}

// unknownField is what the reader of a field returns for a name that it does not know.
const unknownField = -1

func (p *plainJSON) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// take passes over c, if it comes next.
func (p *plainJSON) take(c byte) bool {
	p.space()
	if p.ok && p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *plainJSON) need(c byte) { p.ok = p.take(c) && p.ok }

// object reads an object. field reads the value that belongs to a name and returns
// a number of its own below 32: a name that comes twice is not plain.
func (p *plainJSON) object(field func(name string) int) {
	seen := uint32(0)
	p.members(func(name string) {
		n := field(name)
		if n < 0 || seen&(1<<n) != 0 {
			p.ok = false
			return
		}
		seen |= 1 << n
	})
}

func (p *plainJSON) members(value func(name string)) {
	p.need('{')
	if p.take('}') {
		return
	}
	for p.ok {
		name := p.quoted()
		p.need(':')
		if !p.ok {
			return
		}
		value(name)
		if p.take('}') {
			return
		}
		p.need(',')
	}
}

func (p *plainJSON) list(element func()) {
	p.need('[')
	if p.take(']') {
		return
	}
	for p.ok {
		element()
		if p.take(']') {
			return
		}
		p.need(',')
	}
}

func (p *plainJSON) quoted() string {
	p.need('"')
	from := p.at
	for ; p.ok && p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.text[from : p.at-1]
		case c < ' ' || c == '\\' || c >= 0x7f:
			p.ok = false
		}
	}
	p.ok = false
	return ""
}

func (p *plainJSON) str(n int, into *string) int {
	*into = p.quoted()
	return n
}

func (p *plainJSON) strList(n int, into *[]string) int {
	list := []string{}
	p.list(func() { list = append(list, p.quoted()) })
	*into = list
	return n
}

func (p *plainJSON) strMap(n int, into *map[string]string) int {
	m := map[string]string{}
	p.members(func(name string) { m[name] = p.quoted() })
	*into = m
	return n
}

func (p *plainJSON) word(w string) bool {
	p.space()
	if p.ok && len(p.text)-p.at >= len(w) && p.text[p.at:p.at+len(w)] == w {
		p.at += len(w)
		return true
	}
	return false
}

func (p *plainJSON) boolean(n int, into *bool) int {
	*into = p.word("true")
	if !*into && !p.word("false") {
		p.ok = false
	}
	return n
}

// integer reads up to nine digits; what has more, or a fraction, is not plain.
func (p *plainJSON) integer(n int, into *int) int {
	p.space()
	from := p.at
	if p.at < len(p.text) && p.text[p.at] == '-' {
		p.at++
	}
	first := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	digits := p.at - first
	if digits == 0 || digits > 9 || digits > 1 && p.text[first] == '0' {
		p.ok = false
		return n
	}
	*into, _ = strconv.Atoi(p.text[from:p.at]) // plain digits: it cannot fail
	return n
}
