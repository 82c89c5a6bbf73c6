package raftgroup

import (
	"context"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/node/config"
)

// Autopilot's configuration is a record of the catalog once an operator set it over the
// API: every server follows it, and whoever leads next goes by it. Until then each
// server goes by its configuration file. A restored snapshot brings its own.

// PilotKey is the key of the one record of its kind.
const PilotKey = "config"

func pilotFromFile(a *config.Autopilot) operatorrows.AutopilotConfig {
	return operatorrows.AutopilotConfig{CleanupDeadServers: a.CleanupDeadServers,
		LastContactThreshold: max(a.LastContactThreshold, 200*time.Millisecond),
		MaxTrailingLogs:      uint64(a.MaxTrailingLogs), MinQuorum: uint(a.MinQuorum),
		ServerStabilizationTime: a.ServerStabilizationTime}
}

func EncodePilot(c *operatorrows.AutopilotConfig) []byte {
	b, mark := pack.Begin(nil)
	b = pack.Bool(b, c.CleanupDeadServers)
	b = pack.Int(b, int64(c.LastContactThreshold))
	b = pack.Uint(b, c.MaxTrailingLogs)
	b = pack.Uint(b, uint64(c.MinQuorum))
	b = pack.Int(b, int64(c.ServerStabilizationTime))
	b = pack.String(b, c.RedundancyZoneTag)
	b = pack.Bool(b, c.DisableUpgradeMigration)
	b = pack.String(b, c.UpgradeVersionTag)
	return pack.End(b, mark)
}

func decodePilot(r *catalog.Record) (c operatorrows.AutopilotConfig, err error) {
	outer := pack.Read(r.Value)
	rd := outer.Record()
	c.CleanupDeadServers = rd.Bool()
	c.LastContactThreshold = time.Duration(rd.Int())
	c.MaxTrailingLogs = rd.Uint()
	c.MinQuorum = uint(rd.Uint())
	c.ServerStabilizationTime = time.Duration(rd.Int())
	c.RedundancyZoneTag = rd.String()
	c.DisableUpgradeMigration = rd.Bool()
	c.UpgradeVersionTag = rd.String()
	c.CreateIndex, c.ModifyIndex = r.CreateIndex, r.ModifyIndex
	outer.Merge(rd)
	return c, outer.Err()
}

// PilotConfig is the configuration in force: the record's, else the file's.
func (p *Group) PilotConfig(st *statestore.State) operatorrows.AutopilotConfig {
	if r := st.Record(catalog.RecordAutopilot, PilotKey); r != nil {
		c, err := decodePilot(r)
		if err == nil {
			return c
		}
		p.Base.Log.Error("cannot read autopilot's configuration in the catalog; using the one in the file", "error", err)
	}
	return pilotFromFile(&p.Base.Current().Autopilot)
}

func GroupPilot(c operatorrows.AutopilotConfig) group.AutopilotConfig {
	return group.AutopilotConfig{CleanupDeadServers: c.CleanupDeadServers, LastContactThreshold: c.LastContactThreshold,
		MaxTrailingLogs: c.MaxTrailingLogs, MinQuorum: c.MinQuorum, ServerStabilizationTime: c.ServerStabilizationTime}
}

// followPilot keeps autopilot at the configuration in force, on every server.
func (p *Group) followPilot(ctx context.Context) error {
	index := func(s *statestore.State) uint64 { return s.RecordsIndex(catalog.RecordAutopilot) }
	seen := uint64(0)
	for {
		st := p.Registry.Await(ctx, registry.RecordsSubject(catalog.RecordAutopilot), seen, time.Minute, index)
		if ctx.Err() != nil {
			return nil
		}
		quiet := index(st) == seen
		seen = index(st)
		if err := p.Pilot.Load().SetConfig(GroupPilot(p.PilotConfig(st))); err != nil {
			p.Base.Log.Error("autopilot's configuration is invalid; keeping the previous one", "error", err)
		}
		if quiet { // the minute is over, a snapshot came, or the registry has stopped and never waits again
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
}
