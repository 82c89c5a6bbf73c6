package database

import (
	"context"
	"time"
)

// What is asked of a database, by the names that operators know: those of Vault's plugins of today, and of before its
// version 1.6.
var (
	initializes = []string{"Initialize"}
	creates     = []string{"NewUser", "CreateUser"}
	renews      = []string{"UpdateUser", "RenewUser"}
	updates     = []string{"UpdateUser"} // another password
	revokes     = []string{"DeleteUser", "RevokeUser"}
	closes      = []string{"Close"}
)

// counted times what is asked, and counts what failed.
func (e *Engine) counted(names []string, ask func() error) error {
	begin := time.Now()
	err := ask()
	took := time.Since(begin)
	for _, name := range names {
		for _, full := range []string{"database." + name, "database." + e.Name + "." + name} {
			e.Metrics.Timing(full).Observe(took)
			if err != nil {
				e.Metrics.Counter(full + ".error").Add(1)
			}
		}
	}
	return err
}

// ask is links.do, counted.
func (e *Engine) ask(ctx context.Context, names []string, cfg *config,
	work func(ctx context.Context, l *link) error) error {
	return e.counted(names, func() error { return e.links.do(ctx, cfg, work) })
}

// close lets go of a configuration's connections, where it has any. They go whatever is wrong, so that is counted
// alone.
func (e *Engine) close(name string) {
	if p := e.links.take(name); p != nil {
		_ = e.counted(closes, p.close)
	}
}
