package keeper

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/standing"
	"corbel.dev/corbel/secrets"
)

// TestStreamedLogRightsEnd: whoever reads the log while a line comes each 10 ms, and never a pause, sees none any
// more within 5 s of when its right was taken (row C12).
func TestStreamedLogRightsEnd(t *testing.T) {
	const rules = `path "sys/monitor" { capabilities = ["read"] }`
	for name, take := range map[string]func(h *house, token, entity string){
		"the token is revoked": func(h *house, token, _ string) {
			h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+token+`"}`)
		},
		"its policy allows less": func(h *house, _, _ string) {
			h.policy("log", `path "sys/health" { capabilities = ["read"] }`)
		},
		"its policy is deleted": func(h *house, _, _ string) { h.ok(secrets.Delete, "sys/policies/acl/log", "") },
		"its entity is disabled": func(h *house, _, entity string) {
			h.ok(secrets.Update, "identity/entity/id/"+entity, `{"disabled":true}`)
		},
		"it leaves the group": func(h *house, _, _ string) {
			h.ok(secrets.Update, "identity/group/name/readers", `{"member_entity_ids":[]}`)
		},
		"the group has no such policy": func(h *house, _, _ string) {
			h.ok(secrets.Update, "identity/group/name/readers", `{"policies":[]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.policy("log", rules)
			h.users("ann")
			ann := h.loginAs("ann")
			h.ok(secrets.Update, "identity/group/name/readers", `{"policies":["log"],"member_entity_ids":["`+ann.Entity+`"]}`)
			h.owners.tools.Local.Follow = func(ctx context.Context, _ slog.Level, _ bool, w io.Writer, _ func()) error {
				for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
					_, _ = w.Write([]byte("line\n"))
				}
				return nil
			}
			r, err := h.Handle(t.Context(), &secrets.Request{Op: secrets.Read, Path: "sys/monitor",
				Caller: secrets.Caller{Token: ann.ID}})
			if err != nil {
				t.Fatal(err)
			}
			lines, ended := make(chan int, 10_000), make(chan error, 1)
			go func() { ended <- r.Raw.Stream(counted(lines), func() {}) }()
			for range 150 { // it was judged again, and holds
				polltest.Get(t, lines, "a line")
			}
			take(h, ann.ID, ann.Entity)
			polltest.Get(t, ended, "the end of the stream")
		})
	}
}

// counted tells of each write.
type counted chan int

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	select {
	case c <- len(p):
	default:
	}
	return len(p), nil
}

// TestStreamedSnapshotRightsEnd: what is streamed after Authorise, as a snapshot is, ends with the right.
func TestStreamedSnapshotRightsEnd(t *testing.T) {
	const path = "sys/storage/raft/snapshot"
	for name, take := range map[string]func(h *house, token string){
		"the token is revoked": func(h *house, token string) {
			h.ok(secrets.Update, "auth/token/revoke", `{"token":"`+token+`"}`)
		},
		"without sudo":       func(h *house, _ string) { h.policy("snap", `path "`+path+`" { capabilities = ["read"] }`) },
		"no policy any more": func(h *house, _ string) { h.ok(secrets.Delete, "sys/policies/acl/snap", "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.policy("snap", `path "`+path+`" { capabilities = ["read", "sudo"] }`)
			h.users("ann")
			ann := h.loginAs("ann")
			h.ok(secrets.Update, "identity/group/name/savers", `{"policies":["snap"],"member_entity_ids":["`+ann.Entity+`"]}`)
			holds, err := h.Authorise(t.Context(), &secrets.Request{Op: secrets.Read, Path: path,
				Caller: secrets.Caller{Token: ann.ID}})
			if err != nil {
				t.Fatal(err)
			}
			archive, w := io.Pipe()
			defer archive.Close()
			go func() {
				for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
					if _, err := w.Write([]byte("part")); err != nil {
						return
					}
				}
			}()
			parts, ended := make(chan int, 10_000), make(chan error, 1)
			go func() {
				_, err := io.Copy(counted(parts), standing.New(nil, holds).Reader(archive))
				ended <- err
			}()
			for range 150 { // it was judged again, and holds
				polltest.Get(t, parts, "a part")
			}
			take(h, ann.ID)
			if err := polltest.Get(t, ended, "the end of the archive"); err == nil {
				t.Error("it ended as if it were whole")
			}
		})
	}
}
