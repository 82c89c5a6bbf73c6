// Package side is what dataplanes ask for beside discovery, on the same port: features and bootstrap parameters, the
// servers, roots and certificates, logins, and DNS.
//
// Nothing is decided here: requests become requests of the HTTP API of the process, with the caller's token, and
// what that refuses is refused with the code that its status stands for. The messages are small and read by hand;
// fields that are not known are skipped. All methods may be called at the same time.
package side

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"corbel.dev/corbel/api/xds/h2"
	"corbel.dev/corbel/kit/errkind"
)

// Server is a server of the cluster.
type Server struct {
	ID, Address, Version string
}

// Config says where answers come from. All is required.
type Config struct {
	// Ask asks the process's own HTTP API for a caller at remote. It returns the newest index too, "" for none.
	Ask func(ctx context.Context, remote, method, path, token string, body []byte) (status int, index string,
		answer []byte, err error)
	// MayWrite tells whether a token has service:write on a service, "" being any.
	MayWrite func(ctx context.Context, token, service string) error
	Sign     func(ctx context.Context, token, csr string) (certPEM string, err error)
	DNS      func(ctx context.Context, token string, query []byte, tcp bool) ([]byte, error)
	Servers  func() []Server
	Changes  func() <-chan struct{} // closed when Servers may have changed
}

// The services, as their clients know them.
const (
	Dataplane       = "hashicorp.consul.dataplane.DataplaneService"
	ServerDiscovery = "hashicorp.consul.serverdiscovery.ServerDiscoveryService"
	ConnectCA       = "hashicorp.consul.connectca.ConnectCAService"
	ACL             = "hashicorp.consul.acl.ACLService"
	DNS             = "hashicorp.consul.dns.DNSService"
)

// Services lists them.
var Services = []string{Dataplane, ServerDiscovery, ConnectCA, ACL, DNS}

// Methods are the methods by path.
func Methods(cfg Config) map[string]h2.Method {
	s := &side{cfg}
	return map[string]h2.Method{
		"/" + Dataplane + "/GetSupportedDataplaneFeatures": h2.Unary(s.features),
		"/" + Dataplane + "/GetEnvoyBootstrapParams":       h2.Unary(s.bootstrap),
		"/" + ServerDiscovery + "/WatchServers":            s.servers,
		"/" + ConnectCA + "/WatchRoots":                    s.roots,
		"/" + ConnectCA + "/Sign":                          h2.Unary(s.sign),
		"/" + ACL + "/Login":                               h2.Unary(s.login),
		"/" + ACL + "/Logout":                              h2.Unary(s.logout),
		"/" + DNS + "/Query":                               h2.Unary(s.dns),
	}
}

type side struct{ cfg Config }

const tokenHeader = "x-consul-token"

// fields reads a message: the last value of each field, and all pairs of the map pairs.
func fields(b []byte, pairs protowire.Number) (text map[protowire.Number]string, numbers map[protowire.Number]uint64,
	meta map[string]string, err error) {
	text, numbers, meta = map[protowire.Number]string{}, map[protowire.Number]uint64{}, map[string]string{}
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, nil, malformed
		}
		size := protowire.ConsumeFieldValue(num, kind, b[n:])
		if size < 0 {
			return nil, nil, nil, malformed
		}
		switch value := b[n : n+size]; kind {
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			if num == pairs && pairs != 0 {
				pair, _, _, err := fields(v, 0)
				if err != nil {
					return nil, nil, nil, err
				}
				meta[pair[1]] = pair[2]
			}
			text[num] = string(v)
		case protowire.VarintType:
			numbers[num], _ = protowire.ConsumeVarint(value)
		}
		b = b[n+size:]
	}
	return text, numbers, meta, nil
}

var malformed = errkind.New(errkind.Invalid, "the request is not a well-formed message")

func put(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func putNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// putMessage appends a message within a message, also an empty one.
func putMessage(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// ask asks the API for a caller and reads its answer into v.
func (s *side) ask(ctx context.Context, remote, method, path, token string, body, v any) (index string,
	err error) {
	var raw []byte
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return "", err
		}
	}
	status, index, answer, err := s.cfg.Ask(ctx, remote, method, path, token, raw)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", failure(status, strings.TrimSpace(string(answer)))
	}
	if v == nil {
		return index, nil
	}
	return index, json.Unmarshal(answer, v)
}

// failure is what a status of the API means here.
func failure(status int, text string) error {
	code := h2.Internal
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		code = h2.InvalidArgument
	case http.StatusUnauthorized:
		code = h2.Unauthenticated
	case http.StatusForbidden:
		code = h2.PermissionDenied
		if strings.Contains(text, "ACL not found") {
			code = h2.Unauthenticated
		}
	case http.StatusNotFound:
		code = h2.NotFound
	case http.StatusTooManyRequests:
		code = h2.ResourceExhausted
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		code = h2.Unavailable
	case http.StatusInternalServerError:
		if strings.Contains(text, "No cluster leader") { // the contract's status for it
			code = h2.Unavailable
		}
	}
	return &h2.Status{Code: code, Message: text}
}

// The features that clients know: servers can be watched, certificates are managed here, parameters are given.
const dataplaneFeatures = 3

func (s *side) features(ctx context.Context, from h2.Caller, _ []byte) ([]byte, error) {
	if err := s.cfg.MayWrite(ctx, from.Get(tokenHeader), ""); err != nil {
		return nil, err
	}
	var out []byte
	for f := uint64(1); f <= dataplaneFeatures; f++ {
		out = putMessage(out, 1, putNumber(putNumber(nil, 1, f), 2, 1))
	}
	return out, nil
}

// kinds are the numbers of kinds of services.
var kinds = map[string]uint64{"": 1, "connect-proxy": 2, "mesh-gateway": 3, "terminating-gateway": 4,
	"ingress-gateway": 5, "api-gateway": 6}

func (s *side) bootstrap(ctx context.Context, from h2.Caller, b []byte) ([]byte, error) {
	const nodeID, nodeName, proxyID = 1, 2, 3
	in, _, _, err := fields(b, 0)
	if err != nil {
		return nil, err
	}
	token := from.Get(tokenHeader)
	node := in[nodeName]
	switch {
	case in[proxyID] == "":
		return nil, errkind.New(errkind.Invalid, "proxy_id is required")
	case node == "" && in[nodeID] == "":
		return nil, errkind.New(errkind.Invalid, "node_id or node_name is required")
	case node == "":
		var list []struct{ Node string }
		path := "/v1/catalog/nodes?filter=" + url.QueryEscape("ID == "+strconv.Quote(in[nodeID]))
		if _, err := s.ask(ctx, from.Remote, "GET", path, token, nil, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, errkind.Errorf(errkind.NotFound, "no node has the id %q", in[nodeID])
		}
		node = list[0].Node
	}
	var all *struct {
		Node     struct{ ID, Node, Datacenter string }
		Services []struct {
			Kind, ID, Service string
			Proxy             struct {
				DestinationServiceName string
				Config                 map[string]any
			}
		}
	}
	path := "/v1/catalog/node-services/" + url.PathEscape(node) + "?merge-central-config"
	if _, err := s.ask(ctx, from.Remote, "GET", path, token, nil, &all); err != nil {
		return nil, err
	}
	if all != nil {
		for i := range all.Services {
			v := &all.Services[i]
			if v.ID != in[proxyID] {
				continue
			}
			service := v.Service
			if v.Proxy.DestinationServiceName != "" {
				service = v.Proxy.DestinationServiceName
			}
			if err := s.cfg.MayWrite(ctx, token, service); err != nil {
				return nil, err
			}
			config, err := structpb.NewStruct(v.Proxy.Config)
			if err != nil {
				return nil, errkind.E(errkind.Internal, "Proxy.Config", err)
			}
			encoded, err := proto.Marshal(config)
			if err != nil {
				return nil, errkind.E(errkind.Internal, "Proxy.Config", err)
			}
			out := put(putNumber(nil, 1, kinds[v.Kind]), 2, service)
			out = put(put(put(out, 3, "default"), 4, "default"), 5, all.Node.Datacenter)
			return put(put(putMessage(out, 6, encoded), 7, all.Node.ID), 8, all.Node.Node), nil
		}
	}
	return nil, errkind.Errorf(errkind.NotFound, "node %q has no service %q", node, in[proxyID])
}

// servers sends the list of servers, and again when it is another one.
func (s *side) servers(ctx context.Context, from h2.Caller, _ []byte, send func([]byte) error) error {
	token := from.Get(tokenHeader)
	var last []byte
	for first := true; ; first = false {
		if err := s.cfg.MayWrite(ctx, token, ""); err != nil {
			return err
		}
		changed := s.cfg.Changes()
		var out []byte
		for _, v := range s.cfg.Servers() {
			out = putMessage(out, 1, put(put(put(nil, 1, v.ID), 2, v.Address), 3, v.Version))
		}
		if first || string(out) != string(last) {
			if err := send(out); err != nil {
				return err
			}
			last = out
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rootsWait is how long one question for other roots waits.
const rootsWait = 5 * time.Minute

// roots sends the roots, and again after each rotation.
func (s *side) roots(ctx context.Context, from h2.Caller, _ []byte, send func([]byte) error) error {
	token, index := from.Get(tokenHeader), ""
	var last []byte
	for {
		if err := s.cfg.MayWrite(ctx, token, ""); err != nil {
			return err
		}
		path := "/v1/connect/ca/roots"
		if index != "" {
			path += "?index=" + index + "&wait=" + rootsWait.String()
		}
		var v struct {
			ActiveRootID, TrustDomain string
			Roots                     []struct {
				ID, Name, SigningKeyID, RootCert string
				SerialNumber                     uint64
				IntermediateCerts                []string
				Active                           bool
			}
		}
		next, err := s.ask(ctx, from.Remote, "GET", path, token, nil, &v)
		if err != nil {
			return err
		}
		out := put(put(nil, 1, v.ActiveRootID), 2, v.TrustDomain)
		for _, r := range v.Roots {
			one := put(put(putNumber(put(put(nil, 1, r.ID), 2, r.Name), 3, r.SerialNumber), 4, r.SigningKeyID), 5, r.RootCert)
			for _, c := range r.IntermediateCerts {
				one = put(one, 6, c)
			}
			if r.Active {
				one = putNumber(one, 7, 1)
			}
			out = putMessage(out, 3, one)
		}
		if index == "" || string(out) != string(last) {
			if err := send(out); err != nil {
				return err
			}
			last = out
		}
		index = next
	}
}

func (s *side) sign(ctx context.Context, from h2.Caller, b []byte) ([]byte, error) {
	in, _, _, err := fields(b, 0)
	if err != nil {
		return nil, err
	}
	if in[1] == "" {
		return nil, errkind.New(errkind.Invalid, "csr is required")
	}
	cert, err := s.cfg.Sign(ctx, from.Get(tokenHeader), in[1])
	return put(nil, 2, cert), err
}

func (s *side) login(ctx context.Context, from h2.Caller, b []byte) ([]byte, error) {
	in, _, meta, err := fields(b, 3)
	if err != nil {
		return nil, err
	}
	path := "/v1/acl/login"
	if in[6] != "" {
		path += "?dc=" + url.QueryEscape(in[6])
	}
	var v struct{ AccessorID, SecretID string }
	body := map[string]any{"AuthMethod": in[1], "BearerToken": in[2], "Meta": meta}
	if _, err := s.ask(ctx, from.Remote, "POST", path, "", body, &v); err != nil {
		return nil, err
	}
	return putMessage(nil, 1, put(put(nil, 1, v.AccessorID), 2, v.SecretID)), nil
}

func (s *side) logout(ctx context.Context, from h2.Caller, b []byte) ([]byte, error) {
	in, _, _, err := fields(b, 0)
	if err != nil {
		return nil, err
	}
	if in[1] == "" {
		return nil, errkind.New(errkind.Invalid, "token is required")
	}
	path := "/v1/acl/logout"
	if in[2] != "" {
		path += "?dc=" + url.QueryEscape(in[2])
	}
	_, err = s.ask(ctx, from.Remote, "POST", path, in[1], nil, nil)
	return nil, err
}

func (s *side) dns(ctx context.Context, from h2.Caller, b []byte) ([]byte, error) {
	const overTCP = 1
	in, numbers, _, err := fields(b, 0)
	if err != nil {
		return nil, err
	}
	answer, err := s.cfg.DNS(ctx, from.Get(tokenHeader), []byte(in[1]), numbers[2] == overTCP)
	if err != nil {
		return nil, err
	}
	return putMessage(nil, 1, answer), nil
}
