package keeper

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

// simSeeds is how many histories TestLeaseSimulation tries; 10,000 take some ten seconds. A failure names its seed,
// which -simseed replays alone.
var (
	simSeeds = flag.Int("simseeds", 300, "histories of the lease simulation")
	simSeed  = flag.Uint64("simseed", 0, "the one history to replay")
)

// simToken and simLease are what the model knows of a token and a lease. A plain list and plain rules.
type simToken struct {
	id      string
	parent  *simToken
	expires time.Time
	revoked bool
	maybe   bool // a revocation failed half way: it may have ended or not, until the storage is well
	uses    int  // left at most; 0: not limited
	spent   bool
}

type simLease struct {
	id      string
	name    string // at the engine
	of      *simToken
	expires time.Time
	last    time.Time // past which nothing renews it
	ended   bool
	maybe   bool // a revocation or a renewal failed after the engine had done its part
}

func (m *simToken) gone(now time.Time) bool {
	return m != nil && (m.revoked || m.spent || !now.Before(m.expires) || m.parent.gone(now))
}

// dead reports whether the token may do nothing any more: one below a token that has run out may, until the
// background has seen it.
func (m *simToken) dead(now time.Time) bool { return !now.Before(m.expires) || m.ended() }

func (m *simToken) ended() bool { return m != nil && (m.revoked || m.spent || m.parent.ended()) }

func (m *simToken) unsure() bool { return m != nil && (m.maybe || m.parent.unsure()) }

// simulation is one history.
type simulation struct {
	*house
	store  *failing
	engine *issuer
	r      *rand.Rand
	tokens []*simToken
	leases []*simLease
	log    []string
}

// TestLeaseSimulation makes, uses, renews and ends tokens and leases in random histories, over a storage and an
// engine that fail at times and a server that comes and goes, and holds what is there against the model. Invariants:
// who the model says is gone is denied; who lives is let in when nothing fails; no use is had twice; what the engine
// made lives as long as its lease, and no longer; in the end nothing is left.
func TestLeaseSimulation(t *testing.T) {
	s := &simulation{store: &failing{}}
	s.house = newHouseOver(t, func(m *memstore.Store) storage.Backend { s.store.Store = m; return s.store })
	s.ok(secrets.Update, "sys/policy/maker", `{"policy":"path \"auth/token/*\" { capabilities = [\"update\"] } path `+
		`\"cubbyhole/*\" { capabilities = [\"create\", \"update\"] } path \"db/*\" { capabilities = [\"read\"] } path `+
		`\"sys/leases/renew\" { capabilities = [\"update\"] }"}`)
	s.ok(secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	made, _ := issuers.Load(s.Keeper)
	t.Cleanup(func() { issuers.Delete(s.Keeper) })
	s.engine = made.(*issuer)
	first := rand.Uint64()
	for n := range uint64(*simSeeds) {
		seed := first + n
		if *simSeed != 0 {
			seed = *simSeed
		}
		s.history(seed)
		if t.Failed() {
			t.Logf("replay it with -run TestLeaseSimulation -simseed %d", seed)
			for _, line := range s.log {
				t.Log(line)
			}
			return
		}
		if *simSeed != 0 {
			return
		}
	}
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *simulation) history(seed uint64) {
	s.r = rand.New(rand.NewPCG(seed, 7))
	s.tokens, s.leases, s.log = nil, nil, nil
	s.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // each has its own: nanoseconds of all would pass the year 2262
	for range 40 {
		s.step()
		if s.t.Failed() {
			return
		}
	}
	s.store.left.Store(0)
	s.engine.set(nil)
	s.ok(secrets.Update, "sys/leases/revocation/resume", "")
	s.settle()
	s.wait(40 * 24 * time.Hour) // past every end, and the tries of what could not be revoked
	s.settle()
	for _, prefix := range []string{"sys/expire/", "sys/lease/", "sys/token/going/", "sys/token/parent/"} {
		if left := s.keysBelow(prefix); len(left) != 0 {
			s.t.Errorf("left: %q", left)
		}
	}
	if n := s.engine.count(); n != 0 {
		s.t.Errorf("%d live on at the engine", n)
	}
	if n := len(s.keysBelow("sys/token/id/")); n != 1 {
		s.t.Errorf("%d tokens are left, not the root token alone", n)
	}
}

func pick[T any](r *rand.Rand, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[r.IntN(len(list))], true
}

func (s *simulation) step() {
	t, has := pick(s.r, s.tokens)
	l, leased := pick(s.r, s.leases)
	switch s.r.IntN(14) {
	case 0, 1, 2:
		s.makeToken(t)
	case 3, 4:
		if has {
			s.lease(t)
		}
	case 5:
		if has {
			s.use(t)
		}
	case 6:
		if has {
			s.renew(t)
		}
	case 7:
		if has {
			_, err := s.as(s.root, secrets.Update, "auth/token/revoke", fmt.Sprintf(`{"token":%q}`, t.id))
			s.note("revoke %.8s: %v", t.id[4:], err)
			switch {
			case err == nil:
				t.revoked = true
			default:
				t.maybe = true
			}
		}
	case 8:
		if leased && !s.known(l.of) {
			break
		}
		if leased {
			_, err := s.as(s.root, secrets.Update, "sys/leases/revoke", fmt.Sprintf(`{"lease_id":%q}`, l.id))
			s.note("revoke the lease of %s: %v", l.name, err)
			l.ended, l.maybe = l.ended || err == nil, l.maybe || err != nil
		}
	case 9:
		d := time.Duration(s.r.IntN(20)) * time.Minute
		s.wait(d)
		s.note("%v pass", d)
	case 10: // the server goes and comes
		s.store.left.Store(0)
		s.Seal()
		s.unseal()
		s.note("a restart")
	case 11:
		switch s.r.IntN(4) {
		case 0: // not both at once: what is made for a lease that cannot be stored is taken back at the engine
			s.engine.set(nil)
			s.store.left.Store(int64(1 + s.r.IntN(3)))
			s.note("the storage will fail")
		case 1:
			s.store.left.Store(0)
			s.engine.set(errors.New("away"))
			s.note("the engine is away")
		default:
			s.store.left.Store(0)
			s.engine.set(nil)
			s.note("all is well")
		}
	case 12:
		s.settleSome()
	case 13:
		if leased {
			s.renewLease(l)
		}
	}
}

// known reports whether the model is sure of a token.
func (s *simulation) known(t *simToken) bool { return !t.unsure() }

func (s *simulation) ill() bool { return s.store.left.Load() != 0 }

func (s *simulation) makeToken(parent *simToken) {
	ttl := time.Duration(1+s.r.IntN(60)) * time.Minute
	by, m := s.root, &simToken{expires: s.now.Add(ttl)}
	if parent != nil && s.r.IntN(2) == 0 && parent.uses == 0 {
		by, m.parent = parent.id, parent
	}
	body := fmt.Sprintf(`{"policies":["maker"],"ttl":"%v"`, ttl)
	if s.r.IntN(4) == 0 {
		m.uses = 1 + s.r.IntN(30)
		body += fmt.Sprintf(`,"num_uses":%d`, m.uses)
	}
	r, err := s.as(by, secrets.Update, "auth/token/create", body+"}")
	s.judge("make", m.parent, err)
	if err == nil {
		m.id = r.Token.ID
		s.tokens = append(s.tokens, m)
		s.note("%.8s is made, below %v, for %v, %d uses", m.id[4:], m.parent != nil, ttl, m.uses)
	}
}

// judge holds the outcome of what a token asked for against the model.
func (s *simulation) judge(what string, t *simToken, err error) {
	switch {
	case t == nil:
		if err != nil && !s.ill() {
			s.t.Errorf("%s was refused to the root token: %v", what, err)
		}
	case err == nil && t.dead(s.now):
		s.t.Errorf("%s was allowed to a token that is gone", what)
	case err != nil && !t.gone(s.now) && s.known(t) && !s.ill():
		s.t.Errorf("%s was refused to a token that lives: %v", what, err)
	}
}

// counted takes a use off the model: every request of the token takes one, also one that is refused later.
func (s *simulation) counted(t *simToken, err error) {
	if t.uses == 0 || err != nil && (t.gone(s.now) || s.ill()) {
		return
	}
	if t.uses--; t.uses == 0 {
		t.spent = true
	}
}

func (s *simulation) use(t *simToken) {
	if t.uses > 0 { // a restart may have lost some
		for range 1 + s.r.IntN(t.uses+2) {
			_, err := s.as(t.id, secrets.Update, "cubbyhole/x", `{"a":1}`)
			if err == nil && t.dead(s.now) {
				s.t.Errorf("a use too many, or of a token that is gone")
			}
			s.counted(t, err)
		}
		return
	}
	_, err := s.as(t.id, secrets.Update, "cubbyhole/x", `{"a":1}`)
	if t.spent && err == nil {
		s.t.Error("a spent token was used")
	}
	s.judge("use", t, err)
}

func (s *simulation) lease(t *simToken) {
	if t.uses > 0 || t.spent {
		return // its last use gives none: another test's matter
	}
	r, err := s.as(t.id, secrets.Read, "db/creds/a", "")
	s.judge("lease", t, err)
	if err != nil {
		return
	}
	name := fmt.Sprint(field(s.t, r, "user"))
	s.leases = append(s.leases, &simLease{id: r.Lease.ID, name: name, of: t, expires: s.now.Add(time.Hour),
		last: s.now.Add(3 * time.Hour)})
	s.note("%s is leased to %.8s", name, t.id[4:])
}

func (s *simulation) renew(t *simToken) {
	if t.uses > 0 || t.spent {
		return
	}
	ttl := time.Duration(1+s.r.IntN(90)) * time.Minute
	r, err := s.as(t.id, secrets.Update, "auth/token/renew-self", fmt.Sprintf(`{"increment":"%v"}`, ttl))
	s.judge("renew", t, err)
	if err == nil {
		s.told("token", ttl, r.Token.Left)
		t.expires = s.now.Add(r.Token.Left)
		s.note("%.8s is renewed for %v", t.id[4:], r.Token.Left)
	}
}

// told holds what a renewal promised against what was asked for: a little less, where that saved its write.
func (s *simulation) told(what string, asked, got time.Duration) {
	if got > asked || got < asked-asked/20 {
		s.t.Errorf("a %s was to be renewed for %v and was for %v", what, asked, got)
	}
}

func (s *simulation) renewLease(l *simLease) {
	if !s.known(l.of) || l.maybe || l.ended || s.late(l.id) {
		return
	}
	left := min(time.Duration(1+s.r.IntN(90))*time.Minute, l.last.Sub(s.now))
	r, err := s.as(s.root, secrets.Update, "sys/leases/renew", fmt.Sprintf(`{"lease_id":%q,"increment":"%v"}`, l.id, left))
	switch {
	case err == nil && !s.now.Before(l.expires):
		s.t.Errorf("the lease of %s was renewed after its end", l.name)
	case err == nil:
		s.told("lease", left, r.Lease.Left)
		l.expires = s.now.Add(r.Lease.Left)
		s.note("the lease of %s is renewed for %v", l.name, r.Lease.Left)
	case s.ill(): // it may have been done
		l.maybe, l.expires = true, s.now.Add(max(left, l.expires.Sub(s.now)))
	case s.now.Before(l.expires) && !l.of.gone(s.now):
		s.t.Errorf("the lease of %s, which lives, was not renewed: %v", l.name, err)
	}
}

// settleSome lets the background do what it can.
func (s *simulation) settleSome() {
	_, a := s.Keeper.tokens.Expire(s.t.Context())
	_, b := s.Keeper.leases.RunJobs(s.t.Context())
	_, c := s.Keeper.leases.ExpireLeases(s.t.Context())
	if err := errors.Join(a, b, c); err != nil && !s.ill() {
		s.t.Errorf("the background: %v", err)
	}
	s.note("the background runs")
	if s.ill() {
		return // it may have done all or nothing
	}
	for _, l := range s.leases { // what ended stays ended
		l.ended = l.ended || l.of.gone(s.now) || !s.now.Before(l.expires)
	}
	for _, t := range s.tokens {
		t.revoked = t.revoked || t.gone(s.now)
	}
}

// settle lets the background do all, and looks at everything.
func (s *simulation) settle() {
	for _, t := range s.tokens {
		if t.maybe { // now the storage is well: it goes for sure
			if _, err := s.as(s.root, secrets.Update, "auth/token/revoke", fmt.Sprintf(`{"token":%q}`, t.id)); err == nil {
				t.revoked = true
			}
			t.maybe, t.revoked = false, true
		}
	}
	s.settleSome()
	s.wait(10 * time.Minute) // circuits close, and what was put off is tried again
	s.settleSome()
	for _, t := range s.tokens {
		if t.uses == 0 && !t.spent && s.alive(t.id) == t.gone(s.now) {
			s.t.Errorf("token %.8s is there: %t", t.id[4:], s.alive(t.id))
		}
		if t.uses > 0 && t.gone(s.now) && s.alive(t.id) {
			s.t.Errorf("token %.8s, which had uses left, is there after its end", t.id[4:])
		}
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	var want []string
	for _, l := range s.leases {
		if !l.ended && !l.maybe && !s.engine.live[l.name] {
			s.t.Errorf("%s ended before its lease", l.name)
		}
		if !l.ended {
			want = append(want, l.name)
		}
	}
	for name := range s.engine.live {
		i := slices.IndexFunc(s.leases, func(l *simLease) bool { return l.name == name })
		if slices.Contains(want, name) || i >= 0 && s.late(s.leases[i].id) {
			continue
		}
		s.t.Errorf("%s lives on without a lease", name)
	}
}

// late reports whether a lease could not be revoked so often that it is tried seldom.
func (s *simulation) late(id string) bool {
	raw, ok, err := s.records.Get(s.t.Context(), token.LeasePrefix+id)
	return err == nil && ok && bytes.Contains(raw, []byte(`"tries"`))
}
