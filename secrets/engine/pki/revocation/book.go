// Package revocation has what a mount's authorities have revoked: one record for each certificate, and signed lists,
// made of a log when they are asked for. A Book is safe for concurrent use; it queues nothing: whoever asks for a list
// waits for the turn, or for its context's end.
package revocation

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/storage"
)

// Revoked is a revocation as it is stored, under "revoked/<serial>".
type Revoked struct {
	Time  time.Time `json:"time"`
	Group string    `json:"group"` // of its issuer
	End   time.Time `json:"not_after"`
	Log   string    `json:"log"` // the key of its entry in the log
	Cert  []byte    `json:"certificate"`
}

// Show is the revocation as the API shows it.
func (rv *Revoked) Show() map[string]any {
	return map[string]any{"revocation_time": rv.Time.Unix(), "revocation_time_rfc3339": rv.Time.Format(time.RFC3339Nano),
		"state": "revoked"}
}

// Book is the set of what is revoked, in memory, as lists need it. It follows the log
// ("revlog/<time>/<serial>"): what is new there is read when a list is asked for. Nothing of it is
// the truth, so a new active server, or a commit whose outcome was unknown, needs no care.
type Book struct {
	turn   chan struct{} // held while the log is read and lists are signed; guards what follows
	loaded bool
	gen    string // of the log: it changes when entries are taken out
	newest int64  // the latest time of an entry, ns
	lists  map[string]*list
	rest   time.Time // by the machine's clock: the next reading of the log begins no sooner

	last *atomic.Int64 // the latest time given to an entry
}

// NewBook is an empty book.
func NewBook() Book {
	return Book{turn: make(chan struct{}, 1), last: &atomic.Int64{}}
}

const (
	logPrefix = "revlog/"
	// GenKey is a record that is another one when entries were taken out of the log.
	GenKey  = "revgen"
	logPage = 4096
	// logLate is how much later than a newer entry one may come to be: the longest that a request takes.
	logLate = 2 * time.Minute
	// Reading and signing take a tenth of the time at most; whoever asks meanwhile waits, and gets what is new then.
	restShare = 10
	restMost  = 5 * time.Second
)

// stamp is a time for an entry of the log, later than all before it.
func (b *Book) stamp(now time.Time) int64 {
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
func logEntry(rv *Revoked) []byte {
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

// Revoke is the record that a certificate is revoked, and what goes into the log with it.
func (b *Book) Revoke(cert *x509.Certificate, by *authority.Issuer, now time.Time) (*Revoked, secrets.Op) {
	rv := &Revoked{Time: now.UTC(), Group: by.Group(), End: cert.NotAfter, Cert: cert.Raw,
		Log: logKey(b.stamp(now), forms.Hyphens(cert.SerialNumber))}
	return rv, storage.Put(rv.Log, logEntry(rv))
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
	cfg    Config // that held
}

func (b *Book) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errkind.E(errkind.Unavailable, "", ctx.Err())
	}
}

func (b *Book) unlock() { <-b.turn }

// pause waits until the log may be read again. The caller holds the turn.
func (b *Book) pause(ctx context.Context) error {
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
func (b *Book) refresh(ctx context.Context, view engine.View) error {
	gen, _, err := view.Get(ctx, GenKey)
	if err != nil {
		return err
	}
	if !b.loaded || b.gen != string(gen) {
		b.lists, b.newest, b.loaded = map[string]*list{}, 0, false
	}
	from := fmt.Sprintf("%s%020d", logPrefix, max(b.newest-int64(logLate), 0))
	for {
		records, err := view.Scan(ctx, from, storage.After(logPrefix), logPage)
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

func (b *Book) add(r storage.Record) error {
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

func (b *Book) list(group string) *list {
	l := b.lists[group]
	if l == nil {
		l = &list{have: map[string]bool{}}
		b.lists[group] = l
	}
	return l
}

// Get returns an issuer's list: never without what was revoked before it was asked for, unless the
// mount rebuilds its lists by the clock alone (auto_rebuild). force signs in any case.
func (b *Book) Get(ctx context.Context, view engine.View, now time.Time, a *authority.CA, cfg *Config, delta,
	force bool) ([]byte, error) {
	s, err := b.get(ctx, view, now, a, cfg, delta, force)
	if err != nil {
		return nil, err
	}
	return s.der, nil
}

func (b *Book) get(ctx context.Context, view engine.View, now time.Time, a *authority.CA, cfg *Config, delta,
	force bool) (*signed, error) {
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	if b.loaded && cfg.Auto && !force { // what is signed already may do
		if s := b.list(a.Group()).current(cfg, delta, now, -1); s != nil {
			return s, nil
		}
	}
	if err := b.pause(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() { b.rest = time.Now().Add(min(restShare*time.Since(begun), restMost)) }()
	if err := b.refresh(ctx, view); err != nil {
		return nil, err
	}
	l := b.list(a.Group())
	if s := l.current(cfg, delta, now, len(l.entries)); s != nil && !force {
		return s, nil
	}
	if !delta || l.current(cfg, false, now, l.covered()) == nil {
		s, err := sign(now, a, cfg, l.entries, nil, l.whole)
		if err != nil {
			return nil, err
		}
		l.whole, l.delta = s, nil
	}
	if !delta {
		return l.whole, nil
	}
	s, err := sign(now, a, cfg, l.entries, l.whole, l.delta)
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
func (l *list) current(cfg *Config, delta bool, now time.Time, entries int) *signed {
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

// sign makes a list of the entries that base does not cover; base nil makes a whole one.
func sign(now time.Time, a *authority.CA, cfg *Config, entries []x509.RevocationListEntry, base,
	before *signed) (*signed, error) {
	now = now.UTC()
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
		of, err := DeltaOf(base.number)
		if err != nil {
			return nil, err
		}
		t.ExtraExtensions = append(t.ExtraExtensions, of)
	}
	if !cfg.Disable {
		t.RevokedCertificateEntries = entries
	}
	var err error
	if t.SignatureAlgorithm, err = a.RevocationAlgorithm(); err != nil {
		return nil, err
	}
	if s.der, err = x509.CreateRevocationList(rand.Reader, t, a.X509(), a.Key.Signer); err != nil {
		return nil, errkind.E(errkind.Internal, "sign a revocation list", err)
	}
	return s, nil
}
