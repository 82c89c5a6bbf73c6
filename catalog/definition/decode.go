package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// maxDepth bounds nesting of sidecar services: the contract allows one level.
const maxDepth = 3

// decoder walks decoded JSON or HCL. strict makes unknown keys an error (files).
type decoder struct {
	strict bool
	depth  int
	// nest decodes a service inside a service; a field because the tables below
	// may not refer to the method that refers to them.
	nest func(d decoder, path string, m map[string]any) (*Service, error)
}

// DecodeService reads a service registration body. Keys match in any case, with
// or without underscores; unknown keys are ignored. The error's kind is Invalid.
func DecodeService(body []byte) (*Service, error) {
	m, err := decodeObject(body)
	if err != nil {
		return nil, err
	}
	d, err := decoder{}.service("", m)
	return d, bodyError(err)
}

// DecodeCheck reads a check registration body; see DecodeService.
func DecodeCheck(body []byte) (*Check, error) {
	m, err := decodeObject(body)
	if err != nil {
		return nil, err
	}
	d, err := decoder{}.check("", m)
	return d, bodyError(err)
}

// ServiceFromMap reads a decoded service stanza of a configuration file. An
// unknown key is an error that names it. path prefixes the keys in errors.
func ServiceFromMap(path string, m map[string]any) (*Service, error) {
	d, err := decoder{strict: true}.service(path, m)
	return d, errkind.E(errkind.Invalid, "", err)
}

// CheckFromMap reads a decoded check stanza of a configuration file; see ServiceFromMap.
func CheckFromMap(path string, m map[string]any) (*Check, error) {
	d, err := decoder{strict: true}.check(path, m)
	return d, errkind.E(errkind.Invalid, "", err)
}

// FileDefinitions reads the service, services, check and checks keys of a
// decoded configuration file (JSON, or HCL with its lists of blocks) and
// ignores all other keys. Every wrong key is reported.
func FileDefinitions(m map[string]any) ([]*Service, []*Check, error) {
	var services []*Service
	var checks []*Check
	var failures []error
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		switch folded := fold(key); folded {
		case "service", "services", "check", "checks":
			objects, err := objectList(key, m[key])
			if err != nil {
				failures = append(failures, err)
			}
			for i, o := range objects {
				path := key
				if len(objects) > 1 {
					path = fmt.Sprintf("%s[%d]", key, i)
				}
				if strings.HasPrefix(folded, "service") {
					d, err := ServiceFromMap(path, o)
					services, failures = append(services, d), append(failures, err)
				} else {
					d, err := CheckFromMap(path, o)
					checks, failures = append(checks, d), append(failures, err)
				}
			}
		}
	}
	if err := errors.Join(failures...); err != nil {
		return nil, nil, errkind.E(errkind.Invalid, "", err)
	}
	return services, checks, nil
}

func bodyError(err error) error {
	if err == nil {
		return nil
	}
	return errkind.Errorf(errkind.Invalid, "Request decode failed: %w", err)
}

// decodeObject reads one JSON object; numbers stay exact.
func decodeObject(body []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.EOF // an empty body reads as clients know it
		}
		return nil, bodyError(err)
	}
	return m, nil
}

// fold makes keys comparable: clients write TLSSkipVerify, tls_skip_verify, TlsSkipVerify.
func fold(key string) string { return strings.ReplaceAll(strings.ToLower(key), "_", "") }

// setter stores one decoded value of a T.
type setter[T any] func(d decoder, t *T, path string, v any) error

// object stores each key of m through its setter.
func object[T any](d decoder, t *T, path string, m map[string]any, fields map[string]setter[T]) error {
	var failures []error
	for _, key := range sortedKeys(m) {
		at := join(path, key)
		set, ok := fields[fold(key)]
		switch {
		case !ok && d.strict:
			failures = append(failures, fmt.Errorf("invalid config key %s", at))
		case !ok, m[key] == nil:
		default:
			if err := set(d, t, at, m[key]); err != nil {
				failures = append(failures, err)
			}
		}
	}
	return errors.Join(failures...)
}

func (d decoder) service(path string, m map[string]any) (*Service, error) {
	if d.depth++; d.depth > maxDepth {
		return nil, fmt.Errorf("%s: sidecar services are nested too deep", path)
	}
	d.nest = decoder.service
	s := &Service{}
	return s, object(d, s, path, m, serviceFields)
}

func (d decoder) check(path string, m map[string]any) (*Check, error) {
	c := &Check{}
	return c, object(d, c, path, m, checkFields)
}

func (d decoder) checks(path string, v any) ([]*Check, error) {
	objects, err := objectList(path, v)
	if err != nil {
		return nil, err
	}
	var all []*Check
	for i, o := range objects {
		c, err := d.check(fmt.Sprintf("%s[%d]", path, i), o)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// field adapts a typed reader and the place of its value to a setter.
func field[T, V any](read func(path string, v any) (V, error), at func(*T) *V) setter[T] {
	return func(_ decoder, t *T, path string, v any) error {
		value, err := read(path, v)
		if err == nil {
			*at(t) = value
		}
		return err
	}
}

// ignored accepts a key that has no meaning here (enterprise fields).
func ignored[T any](decoder, *T, string, any) error { return nil }

type (
	sd = Service
	cd = Check
)

var serviceFields = map[string]setter[sd]{
	"kind":    field(readString, func(s *sd) *string { return &s.Kind }),
	"id":      field(readString, func(s *sd) *string { return &s.ID }),
	"name":    field(readString, func(s *sd) *string { return &s.Name }),
	"tags":    field(readStrings, func(s *sd) *[]string { return &s.Tags }),
	"address": field(readString, func(s *sd) *string { return &s.Address }),
	"taggedaddresses": field(readAddresses, func(s *sd) *map[string]catalog.ServiceAddress {
		return &s.TaggedAddresses
	}),
	"meta": field(readStringMap, func(s *sd) *map[string]string { return &s.Meta }),
	"port": field(readInt, func(s *sd) *int { return &s.Port }),
	"ports": func(d decoder, s *sd, path string, v any) (err error) {
		s.Ports, err = d.ports(path, v)
		return err
	},
	"socketpath":        field(readString, func(s *sd) *string { return &s.SocketPath }),
	"weights":           field(readWeights, func(s *sd) **catalog.Weights { return &s.Weights }),
	"token":             field(readString, func(s *sd) *string { return &s.Token }),
	"enabletagoverride": field(readBool, func(s *sd) *bool { return &s.EnableTagOverride }),
	"locality":          field(readLocality, func(s *sd) **catalog.Locality { return &s.Locality }),
	"proxy": func(d decoder, s *sd, path string, v any) (err error) {
		s.Proxy, err = d.proxy(path, v)
		return err
	},
	"check": func(d decoder, s *sd, path string, v any) error {
		// HCL writes several check blocks under one key.
		all, err := d.checks(path, v)
		if len(all) == 1 {
			s.Check = all[0]
		} else {
			s.Checks = append(s.Checks, all...)
		}
		return err
	},
	"checks": func(d decoder, s *sd, path string, v any) error {
		all, err := d.checks(path, v)
		s.Checks = append(s.Checks, all...)
		return err
	},
	"connect": func(d decoder, s *sd, path string, v any) error {
		m, err := readObject(path, v)
		if err != nil {
			return err
		}
		s.Connect = &Connect{}
		return object(d, s.Connect, path, m, connectFields)
	},
	"namespace": ignored[sd], "partition": ignored[sd], "ns": ignored[sd],
}

var connectFields = map[string]setter[Connect]{
	"native": field(readBool, func(c *Connect) *bool { return &c.Native }),
	"sidecarservice": func(d decoder, c *Connect, path string, v any) error {
		m, err := readObject(path, v)
		if err != nil {
			return err
		}
		c.SidecarService, err = d.nest(d, path, m)
		return err
	},
}

var checkFields = map[string]setter[cd]{
	"id":                field(readString, func(c *cd) *string { return &c.ID }),
	"checkid":           field(readString, func(c *cd) *string { return &c.ID }),
	"name":              field(readString, func(c *cd) *string { return &c.Name }),
	"notes":             field(readString, func(c *cd) *string { return &c.Notes }),
	"serviceid":         field(readString, func(c *cd) *string { return &c.ServiceID }),
	"token":             field(readString, func(c *cd) *string { return &c.Token }),
	"status":            field(readString, func(c *cd) *string { return &c.Status }),
	"http":              field(readString, func(c *cd) *string { return &c.HTTP }),
	"header":            field(readHeader, func(c *cd) *map[string][]string { return &c.Header }),
	"method":            field(readString, func(c *cd) *string { return &c.Method }),
	"body":              field(readString, func(c *cd) *string { return &c.Body }),
	"disableredirects":  field(readBool, func(c *cd) *bool { return &c.DisableRedirects }),
	"tcp":               field(readString, func(c *cd) *string { return &c.TCP }),
	"tcpusetls":         field(readBool, func(c *cd) *bool { return &c.TCPUseTLS }),
	"udp":               field(readString, func(c *cd) *string { return &c.UDP }),
	"grpc":              field(readString, func(c *cd) *string { return &c.GRPC }),
	"grpcusetls":        field(readBool, func(c *cd) *bool { return &c.GRPCUseTLS }),
	"h2ping":            field(readString, func(c *cd) *string { return &c.H2PING }),
	"h2pingusetls":      field(readBoolPtr, func(c *cd) **bool { return &c.H2PingUseTLS }),
	"tlsservername":     field(readString, func(c *cd) *string { return &c.TLSServerName }),
	"tlsskipverify":     field(readBool, func(c *cd) *bool { return &c.TLSSkipVerify }),
	"args":              field(readStrings, func(c *cd) *[]string { return &c.ScriptArgs }),
	"scriptargs":        field(readStrings, func(c *cd) *[]string { return &c.ScriptArgs }),
	"dockercontainerid": field(readString, func(c *cd) *string { return &c.DockerContainerID }),
	"shell":             field(readString, func(c *cd) *string { return &c.Shell }),
	"osservice":         field(readString, func(c *cd) *string { return &c.OSService }),
	"aliasnode":         field(readString, func(c *cd) *string { return &c.AliasNode }),
	"aliasservice":      field(readString, func(c *cd) *string { return &c.AliasService }),
	"sessionname":       field(readString, func(c *cd) *string { return &c.SessionName }),
	"interval":          field(readDuration, func(c *cd) *dur { return &c.Interval }),
	"timeout":           field(readDuration, func(c *cd) *dur { return &c.Timeout }),
	"ttl":               field(readDuration, func(c *cd) *dur { return &c.TTL }),

	"successbeforepassing":           field(readInt, func(c *cd) *int { return &c.SuccessBeforePassing }),
	"failuresbeforewarning":          field(readInt, func(c *cd) *int { return &c.FailuresBeforeWarning }),
	"failuresbeforecritical":         field(readInt, func(c *cd) *int { return &c.FailuresBeforeCritical }),
	"deregistercriticalserviceafter": field(readDuration, func(c *cd) *dur { return &c.DeregisterCriticalServiceAfter }),
	"outputmaxsize":                  field(readInt, func(c *cd) *int { return &c.OutputMaxSize }),
	"namespace":                      ignored[cd], "partition": ignored[cd], "ns": ignored[cd], "proxyhttp": ignored[cd],
	"proxygrpc": ignored[cd],
}
