package definition

import (
	"fmt"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// maxPorts bounds the named ports of one instance; the contract has no bound.
const maxPorts = 256

var portFields = map[string]setter[catalog.NamedPort]{
	"name":    field(readString, func(p *catalog.NamedPort) *string { return &p.Name }),
	"port":    field(readInt, func(p *catalog.NamedPort) *int { return &p.Port }),
	"default": field(readBool, func(p *catalog.NamedPort) *bool { return &p.Default }),
}

func (d decoder) ports(path string, v any) ([]catalog.NamedPort, error) {
	objects, err := objectList(path, v)
	if err != nil {
		return nil, err
	}
	ports := make([]catalog.NamedPort, len(objects))
	for i, o := range objects {
		if err := object(d, &ports[i], fmt.Sprintf("%s[%d]", path, i), o, portFields); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// DefaultPort is the number of the default one of the ports, 0 when there is none.
func DefaultPort(ports []catalog.NamedPort) int {
	for _, p := range ports {
		if p.Default {
			return p.Port
		}
	}
	return 0
}

// ValidatePorts checks the named ports of an instance that is registered with port, which is 0 or that of the
// default one. Two names may have one port. Kind Invalid.
func ValidatePorts(port int, s catalog.Sockets) error {
	if len(s.Ports) == 0 {
		return nil
	}
	if s.SocketPath != "" {
		return errkind.New(errkind.Invalid, "Ports and SocketPath are exclusive: a service has one of them")
	}
	if len(s.Ports) > maxPorts {
		return errkind.Errorf(errkind.Invalid, "Invalid Ports: %d, at most %d are taken", len(s.Ports), maxPorts)
	}
	seen, defaults := map[string]bool{}, 0
	for _, p := range s.Ports {
		switch name := strings.ToLower(p.Name); {
		case strings.TrimSpace(name) == "":
			return errkind.New(errkind.Invalid, "Ports.Name cannot be empty")
		case seen[name]:
			return errkind.Errorf(errkind.Invalid, "Ports.Name %q has to be unique", p.Name)
		case p.Port == 0:
			return errkind.New(errkind.Invalid, "Ports.Port must be non-zero")
		case p.Port < 0 || p.Port > 65535:
			return errkind.Errorf(errkind.Invalid, "Invalid Ports.Port %d of %q", p.Port, p.Name)
		default:
			seen[name] = true
		}
		if p.Default {
			defaults++
		}
	}
	switch {
	case defaults == 0:
		return errkind.New(errkind.Invalid, "one of the Ports must be marked as Default")
	case defaults > 1:
		return errkind.New(errkind.Invalid, "only one port can be marked as default")
	case port != 0 && port != DefaultPort(s.Ports):
		return errkind.Errorf(errkind.Invalid,
			"Port %d is not the default one of Ports, %d: leave Port out", port, DefaultPort(s.Ports))
	}
	return nil
}
