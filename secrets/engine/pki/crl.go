package pki

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/storage"
)

// book is the set of what is revoked, in memory, as lists need it. It follows the log
// ("revlog/<time>/<serial>"): what is new there is read when a list is asked for. Nothing of it is
// the truth, so a new active server, or a commit whose outcome was unknown, needs no care.
type book struct {
	turn   chan struct{} // held while the log is read and lists are signed; guards what follows
	loaded bool
	gen    string // of the log: it changes when entries are taken out
	newest int64  // the latest time of an entry, ns
	lists  map[string]*list
	rest   time.Time // by the machine's clock: the next reading of the log begins no sooner

	last *atomic.Int64 // the latest time given to an entry
}

func newBook() book {
	return book{turn: make(chan struct{}, 1), last: &atomic.Int64{}}
}

const (
	logPrefix = "revlog/"
	genKey    = "revgen"
	logPage   = 4096
	// logLate is how much later than a newer entry one may come to be: the longest that a request takes.
	logLate = 2 * time.Minute
	// Reading and signing take a tenth of the time at most; whoever asks meanwhile waits, and gets what is new then.
	restShare = 10
	restMost  = 5 * time.Second
)

// stamp is a time for an entry of the log, later than all before it.
func (b *book) stamp(now time.Time) int64 {
	for {
		last := b.last.Load()
		next := max(now.UnixNano(), last+1)
		if b.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

func logKey(stamp int64, serial string) string {
	return fmt.Sprintf("%s%020d/%s", logPrefix, max(stamp, 0), serial)
}

// logEntry is the group and the times of revocation and of the certificate's end.
func logEntry(rv *revoked) []byte {
	return fmt.Appendf(nil, "%s %d %d", rv.Group, rv.Time.Unix(), rv.End.Unix())
}

func parseLogEntry(key string, value []byte) (stamp int64, group string, e x509.RevocationListEntry, ok bool) {
	when, serial, ok := strings.Cut(strings.TrimPrefix(key, logPrefix), "/")
	if !ok {
		return 0, "", e, false
	}
	stamp, err := strconv.ParseInt(when, 10, 64)
	number, valid := new(big.Int).SetString(strings.ReplaceAll(serial, "-", ""), 16)
	parts := strings.Split(string(value), " ")
	if err != nil || !valid || len(parts) != 3 {
		return 0, "", e, false
	}
	at, err := strconv.ParseInt(parts[1], 10, 64)
	return stamp, parts[0], x509.RevocationListEntry{SerialNumber: number, RevocationTime: time.Unix(at, 0).UTC()},
		err == nil
}

// list is what the issuers of one group have revoked, in the order that it was learned.
type list struct {
	have    map[string]bool
	entries []x509.RevocationListEntry
	whole   *signed
	delta   *signed // what is not in whole
}

// signed is a list as it is given out.
type signed struct {
	der    []byte
	number *big.Int
	at     time.Time
	next   time.Time
	count  int // of the entries, from the first, that it or its base covers
	base   *signed
	cfg    crlConfig // that held
}

func (b *book) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "", ctx.Err())
	}
}

func (b *book) unlock() { <-b.turn }

// pause waits until the log may be read again. The caller holds the turn.
func (b *book) pause(ctx context.Context) error {
	wait := time.Until(b.rest)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "", ctx.Err())
	}
}

// refresh reads what is new in the log. The caller holds the turn.
func (b *book) refresh(c *call) error {
	gen, _, err := c.view.Get(c, genKey)
	if err != nil {
		return err
	}
	if !b.loaded || b.gen != string(gen) {
		b.lists, b.newest, b.loaded = map[string]*list{}, 0, false
	}
	from := fmt.Sprintf("%s%020d", logPrefix, max(b.newest-int64(logLate), 0))
	for {
		records, err := c.view.Scan(c, from, storage.After(logPrefix), logPage)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := b.add(r); err != nil {
				return err
			}
		}
		if len(records) < logPage {
			break
		}
		from = records[len(records)-1].Key + "\x00"
	}
	b.loaded, b.gen = true, string(gen)
	return nil
}

func (b *book) add(r storage.Record) error {
	stamp, group, e, ok := parseLogEntry(r.Key, r.Value)
	if !ok {
		return errkind.Errorf(errkind.Corrupt, "the record %s is not what was stored", r.Key)
	}
	l := b.list(group)
	if serial := string(e.SerialNumber.Bytes()); !l.have[serial] {
		l.have[serial] = true
		l.entries = append(l.entries, e)
	}
	b.newest = max(b.newest, stamp)
	return nil
}

func (b *book) list(group string) *list {
	l := b.lists[group]
	if l == nil {
		l = &list{have: map[string]bool{}}
		b.lists[group] = l
	}
	return l
}

// get returns an issuer's list: never without what was revoked before it was asked for, unless the
// mount rebuilds its lists by the clock alone (auto_rebuild). force signs in any case.
func (b *book) get(c *call, a *authority, cfg *crlConfig, delta, force bool) (*signed, error) {
	if err := b.lock(c); err != nil {
		return nil, err
	}
	defer b.unlock()
	if b.loaded && cfg.Auto && !force { // what is signed already may do
		if s := b.list(a.group).current(cfg, delta, c.r.Now, -1); s != nil {
			return s, nil
		}
	}
	if err := b.pause(c); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() { b.rest = time.Now().Add(min(restShare*time.Since(begun), restMost)) }()
	if err := b.refresh(c); err != nil {
		return nil, err
	}
	l := b.list(a.group)
	if s := l.current(cfg, delta, c.r.Now, len(l.entries)); s != nil && !force {
		return s, nil
	}
	if !delta || l.current(cfg, false, c.r.Now, l.covered()) == nil {
		s, err := sign(c, a, cfg, l.entries, nil, l.whole)
		if err != nil {
			return nil, err
		}
		l.whole, l.delta = s, nil
	}
	if !delta {
		return l.whole, nil
	}
	s, err := sign(c, a, cfg, l.entries, l.whole, l.delta)
	if err != nil {
		return nil, err
	}
	l.delta = s
	return s, nil
}

// covered is how many entries the whole list has.
func (l *list) covered() int {
	if l.whole == nil {
		return 0
	}
	return l.whole.count
}

// current returns the list that is signed already, when it will do: it is not near its end, and it
// has all of so many entries, or none is owed by the clock yet. entries -1 is not known.
func (l *list) current(cfg *crlConfig, delta bool, now time.Time, entries int) *signed {
	s := l.whole
	if delta {
		s = l.delta
	}
	grace := cfg.Grace
	if grace >= cfg.Expiry {
		grace = cfg.Expiry / 10
	}
	if s == nil || s.cfg != *cfg || (delta && s.base != l.whole) || !now.Before(s.next.Add(-grace)) {
		return nil
	}
	owed := !cfg.Auto || (delta && !now.Before(s.at.Add(cfg.DeltaEvery)))
	if owed && s.count != entries {
		return nil
	}
	return s
}

var oidDeltaIndicator = asn1.ObjectIdentifier{2, 5, 29, 27}

// sign makes a list of the entries that base does not cover; base nil makes a whole one.
func sign(c *call, a *authority, cfg *crlConfig, entries []x509.RevocationListEntry, base,
	before *signed) (*signed, error) {
	now := c.r.Now.UTC()
	s := &signed{at: now, next: now.Add(cfg.Expiry), count: len(entries), number: big.NewInt(now.UnixMilli()),
		base: base, cfg: *cfg}
	for _, other := range []*signed{base, before} { // numbers never fall, whatever the clock does
		if other != nil && s.number.Cmp(other.number) <= 0 {
			s.number = new(big.Int).Add(other.number, big.NewInt(1))
		}
	}
	t := &x509.RevocationList{Number: s.number, ThisUpdate: s.at, NextUpdate: s.next}
	if base != nil {
		entries = entries[base.count:]
		value, err := asn1.Marshal(base.number)
		if err != nil {
			return nil, err
		}
		t.ExtraExtensions = append(t.ExtraExtensions, forms.Extension{Id: oidDeltaIndicator, Critical: true, Value: value})
	}
	if !cfg.Disable {
		t.RevokedCertificateEntries = entries
	}
	var err error
	if t.SignatureAlgorithm, err = revocationAlgorithm(a); err != nil {
		return nil, err
	}
	if s.der, err = x509.CreateRevocationList(rand.Reader, t, a.cert, a.key.signer); err != nil {
		return nil, errkind.E(errkind.Internal, "sign a revocation list", err)
	}
	return s, nil
}

// revocationAlgorithm is what the issuer's lists and OCSP answers are signed with.
func revocationAlgorithm(a *authority) (x509.SignatureAlgorithm, error) {
	if a.Algorithm != "" {
		for alg := x509.MD2WithRSA; alg <= x509.PureEd25519; alg++ {
			if strings.EqualFold(alg.String(), a.Algorithm) || strings.EqualFold(strings.ReplaceAll(alg.String(), "-", "With"),
				a.Algorithm) {
				return alg, nil
			}
		}
		return 0, invalid("revocation_signature_algorithm: %q is not known", a.Algorithm)
	}
	return forms.SignatureOf(a.key.signer.Public(), 0, false)
}
