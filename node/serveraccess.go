package node

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/login"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/base"
)

// resetFile, in data_dir, holds the index that lets an operator bootstrap ACLs once more.
const resetFile = "acl-bootstrap-reset"

// judge makes what resolves tokens, from the records, and what keeps those; nothing while ACLs are off.
func (s *Server) judge() rows.Authorizer {
	c := &s.Cfg.ACL
	if !c.Enabled {
		return rows.AllowAll{}
	}
	s.resolver = grants.NewResolver(grants.Config{
		Now: func() (uint64, *statestore.State) {
			generation := s.registry.Generation()
			return generation, s.registry.State()
		},
		Datacenter: s.Cfg.Node.Datacenter, NodeName: s.Cfg.Node.Name, AllowByDefault: c.Policy() == "allow",
		Recovery:          func() string { return s.Tokens.Get(base.TokenRecovery) },
		InitialManagement: c.InitialManagement, Clock: s.Clock,
	})
	s.keeper = grants.NewKeeper(grants.KeeperConfig{
		Store: s.registry, Leader: s.raft, Datacenter: s.Cfg.Node.Datacenter, InitialManagement: c.InitialManagement,
		ResetIndex: s.bootstrapReset, Verifier: login.New(s.Clock), Clock: s.Clock, Logger: s.Log,
	})
	s.RPCSrv.Handle(wire.Members, methodResolve, serveResolve(s.resolver))
	return s.resolver
}

// maySync judges on the leader what agents' anti-entropy asks for.
func (s *Server) maySync(token string, c catalog.Command) error {
	g, err := s.resolver.Grant(context.Background(), token) // reads the State: it does not wait
	if err != nil {
		return err
	}
	return grants.MaySync(g, s.registry.State(), c)
}

// maySee leaves, of a node's registrations, what a token may see on the leader.
func (s *Server) maySee(token string, list []*catalog.Register) ([]*catalog.Register, error) {
	g, err := s.resolver.Grant(context.Background(), token) // reads the State: it does not wait
	if err != nil {
		return nil, err
	}
	return visible(g, list), nil
}

// visible is the part of a node's registrations that g may read, as the API shows them.
func visible(g *acl.Grant, list []*catalog.Register) (out []*catalog.Register) {
	names := map[string]string{} // of services, by ID
	for _, r := range list {
		if r.Service != nil {
			names[r.Service.ID] = r.Service.Name
		}
	}
	for _, r := range list {
		if !g.Allow(acl.Node, r.Node.Name, acl.Read) || r.Service != nil && !g.Allow(acl.Service, r.Service.Name, acl.Read) {
			continue
		}
		seen := *r
		seen.Checks = nil
		for _, c := range r.Checks {
			if c.ServiceID == "" || g.Allow(acl.Service, cmp.Or(c.ServiceName, names[c.ServiceID]), acl.Read) {
				seen.Checks = append(seen.Checks, c)
			}
		}
		out = append(out, &seen)
	}
	return out
}

// bootstrapReset reads the index in the reset file, or removes the file when it has done its duty.
func (s *Server) bootstrapReset(done bool) uint64 {
	if s.Cfg.DataDir == "" {
		return 0
	}
	path := filepath.Join(s.Cfg.DataDir, resetFile)
	if done {
		if err := s.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("remove this file: it would allow another ACL bootstrap", "file", path, "err", err)
		}
		return 0
	}
	data, err := vfs.ReadFile(s.FS, path)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			s.Log.Warn("cannot read the ACL bootstrap reset file", "file", path, "err", err)
		}
		return 0
	}
	index, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		s.Log.Warn("the ACL bootstrap reset file holds no index", "file", path)
	}
	return index
}

func serveResolve(r *grants.Resolver) rpc.Handler {
	return func(ctx context.Context, req []byte) ([]byte, error) {
		rd := pack.Read(req)
		secret := rd.String()
		if rd.Err() != nil {
			return nil, errkind.E(errkind.Invalid, "read a token to resolve", rd.Err())
		}
		res, err := r.Resolve(ctx, secret)
		if err != nil {
			return nil, err
		}
		return res.AppendPack(nil), nil
	}
}
