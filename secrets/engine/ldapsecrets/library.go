package ldapsecrets

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/directory"
	"corbel.dev/corbel/secrets/engine/elsewhere"
	"corbel.dev/corbel/secrets/engine/record"
	"corbel.dev/corbel/secrets/storage"
)

// library is a set of accounts that are lent, under "library/<name>".
type library struct {
	Users  []string      `json:"service_account_names"`
	TTL    time.Duration `json:"ttl"`
	MaxTTL time.Duration `json:"max_ttl"`
	Anyone bool          `json:"disable_check_in_enforcement,omitempty"` // may return what others borrowed
}

// loan is an account that is lent, and what its lease knows.
type loan struct {
	ID     string `json:"id"`
	User   string `json:"user"`
	Entity string `json:"entity,omitempty"`
	Token  string `json:"token"`           // the hash of the borrower's
	Tries  int    `json:"tries,omitempty"` // to end it
}

const (
	loanPrefix   = "loan/"
	usersMost    = 1000
	libraryTerms = 24 * time.Hour
)

func (l *library) params() record.Params {
	return record.Params{{Name: "service_account_names", At: &l.Users}, {Name: "ttl", At: &l.TTL},
		{Name: "max_ttl", At: &l.MaxTTL}, {Name: "disable_check_in_enforcement", At: &l.Anyone}}
}

// library is the set that is asked about; that there is none is an error.
func (c *call) library() (*library, error) {
	l, err := elsewhere.Find[library](c, c.view, "library/"+c.name)
	if err == nil && l == nil {
		err = elsewhere.Invalid("%q doesn't exist", c.name)
	}
	return l, err
}

func (c *call) readLibrary() (*secrets.Response, error) {
	l, err := elsewhere.Find[library](c, c.view, "library/"+c.name)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, elsewhere.ErrNotFound
	}
	out := map[string]any{}
	l.params().Show(out)
	return elsewhere.Answer(out)
}

func (c *call) writeLibrary() (*secrets.Response, error) {
	l := &library{TTL: libraryTerms, MaxTTL: libraryTerms}
	have, err := elsewhere.Find[library](c, c.view, "library/"+c.name)
	if err != nil {
		return nil, err
	}
	var before []string
	if have != nil {
		*l, before = *have, have.Users
	}
	if err := l.params().Read(c.f); err != nil {
		return nil, err
	}
	l.Users = slices.Compact(slices.Sorted(slices.Values(l.Users)))
	switch {
	case len(l.Users) == 0 || len(l.Users) > usersMost:
		return nil, elsewhere.Invalid("field \"service_account_names\": must have 1 to %d names", usersMost)
	case slices.Contains(l.Users, ""):
		return nil, elsewhere.Invalid("field \"service_account_names\": has an empty name")
	case l.TTL <= 0 || l.MaxTTL < l.TTL:
		return nil, elsewhere.Invalid("field \"ttl\": must be above 0, and not greater than max_ttl")
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	owner := "library/" + c.name
	resp, err := elsewhere.Store(owner, l)
	if err != nil {
		return nil, err
	}
	added := slices.DeleteFunc(slices.Clone(l.Users), func(u string) bool { return slices.Contains(before, u) })
	for _, user := range added {
		if _, err := c.claim(user, owner); err != nil {
			return nil, elsewhere.Invalid("field \"service_account_names\": %s", errkind.Text(err))
		}
		op, err := elsewhere.Put(accountKey(user), account{Owner: owner, User: user})
		if err != nil {
			return nil, err
		}
		resp.Ops = append(resp.Ops, op)
	}
	for _, user := range before {
		if slices.Contains(l.Users, user) {
			continue
		}
		if err := c.free(user, &resp.Ops); err != nil {
			return nil, err
		}
	}
	if len(added) == 0 {
		return resp, nil
	}
	return resp, c.do(c, cfg, func(s *directory.Session) error {
		for _, user := range added {
			if _, err := cfg.find(s, user); err != nil {
				return err
			}
		}
		return nil
	})
}

// free takes an account out of its library, unless it is lent.
func (c *call) free(user string, ops *[]secrets.Op) error {
	a, err := elsewhere.Find[account](c, c.view, accountKey(user))
	if err != nil {
		return err
	}
	if a != nil && a.Loan != nil {
		return elsewhere.Invalid("%q can't be removed because it is currently checked out: check it in first", user)
	}
	*ops = append(*ops, storage.Delete(accountKey(user)))
	return nil
}

func (c *call) deleteLibrary() (*secrets.Response, error) {
	l, err := elsewhere.Find[library](c, c.view, "library/"+c.name)
	if err != nil || l == nil {
		return &secrets.Response{}, err
	}
	resp := &secrets.Response{Ops: []secrets.Op{storage.Delete("library/" + c.name)}}
	for _, user := range l.Users {
		if err := c.free(user, &resp.Ops); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// accounts are those of a library, in the order of their names.
func (c *call) accounts(l *library) (list []*account, err error) {
	for _, user := range l.Users {
		a, err := elsewhere.Find[account](c, c.view, accountKey(user))
		if err != nil {
			return nil, err
		}
		if a == nil {
			return nil, errkind.Errorf(errkind.Corrupt, "the account %s of the library is not stored", user)
		}
		list = append(list, a)
	}
	return list, nil
}

func (c *call) status() (*secrets.Response, error) {
	l, err := c.library()
	if err != nil {
		return nil, err
	}
	list, err := c.accounts(l)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, a := range list {
		one := map[string]any{"available": a.Loan == nil}
		if a.Loan != nil {
			one["borrower_client_token"] = a.Loan.Token
			if a.Loan.Entity != "" {
				one["borrower_entity_id"] = a.Loan.Entity
			}
		}
		out[a.User] = one
	}
	return elsewhere.Answer(out)
}

// checkOut lends the first account that is free, with a password that is new.
func (c *call) checkOut() (*secrets.Response, error) {
	l, err := c.library()
	if err != nil {
		return nil, err
	}
	ttl := c.f.Duration("ttl", l.TTL)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if ttl <= 0 {
		return nil, elsewhere.Invalid("field \"ttl\": must be above 0")
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	list, err := c.accounts(l)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(a *account) bool { return a.Loan == nil })
	if i < 0 {
		return nil, elsewhere.Invalid("No service accounts available for check-out.")
	}
	password, err := c.password(cfg)
	if err != nil {
		return nil, err
	}
	a := list[i]
	id := uuid.NewString()
	a.Loan = &loan{ID: id, User: a.User, Entity: c.r.Whose, Token: token(c.r)}
	half := elsewhere.DueKey(loanPrefix, c.r.Now.Add(elsewhere.Wait), id) // the entry of a loan that a crash leaves so
	entry, err := elsewhere.Put(half, a.Loan)
	if err != nil {
		return nil, err
	}
	resp, err := elsewhere.Store(accountKey(a.User), a, entry)
	if err != nil {
		return nil, err
	}
	resp.Then = elsewhere.Step(func(ctx context.Context) (*secrets.Response, error) {
		if err := c.reset(ctx, cfg, a.User, password); err != nil {
			return nil, err // the entry ends the loan
		}
		internal, err := json.Marshal(a.Loan)
		if err != nil {
			return nil, err
		}
		out, err := elsewhere.Answer(map[string]any{"service_account_name": a.User, "password": password})
		if err != nil {
			return nil, err
		}
		standard, longest := elsewhere.Lifetimes(c.e.TTLs, min(ttl, l.MaxTTL), l.MaxTTL)
		out.Ops = []secrets.Op{storage.Delete(half)}
		out.Lease = &secrets.Lease{TTL: standard, MaxTTL: longest, Renewable: true, Internal: internal}
		return out, nil
	})
	return resp, nil
}

// reset gives an account a password.
func (c *call) reset(ctx context.Context, cfg *config, user, password string) error {
	return c.do(ctx, cfg, func(s *directory.Session) error {
		dn, err := cfg.find(s, user)
		if err != nil {
			return err
		}
		return cfg.set(s, dn, password)
	})
}

func checkIn(c *call) (*secrets.Response, error)       { return c.giveBack(false) }
func manageCheckIn(c *call) (*secrets.Response, error) { return c.giveBack(true) }

// giveBack ends loans: those that are named, or the only one of the caller's.
func (c *call) giveBack(managed bool) (*secrets.Response, error) {
	l, err := c.library()
	if err != nil {
		return nil, err
	}
	names := c.f.Strings("service_account_names")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	list, err := c.accounts(l)
	if err != nil {
		return nil, err
	}
	mine := func(a *account) bool {
		return managed || l.Anyone || a.Loan.Token == token(c.r) || a.Loan.Entity != "" && a.Loan.Entity == c.r.Whose
	}
	var back []*account
	for _, a := range list {
		if len(names) == 0 && a.Loan != nil && mine(a) || slices.Contains(names, a.User) {
			back = append(back, a)
		}
	}
	switch {
	case len(names) == 0 && len(back) > 1:
		return nil, elsewhere.Invalid("when multiple service accounts are checked out, \"service_account_names\" must be " +
			"provided")
	case len(names) == 0 && len(back) == 0:
		return elsewhere.Answer(map[string]any{"check_ins": []string{}})
	case len(back) < len(names):
		return nil, elsewhere.Invalid("field \"service_account_names\": the library %s has %s alone", c.name,
			strings.Join(l.Users, ", "))
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	done, ops := []string{}, []secrets.Op(nil)
	for _, a := range back {
		if a.Loan == nil { // it is free already
			continue
		}
		if !mine(a) {
			return nil, elsewhere.Invalid("%q can't be checked in because it wasn't checked out by the caller", a.User)
		}
		op, err := c.lock(cfg, a)
		if err != nil {
			return nil, err // those before are locked already, and stay lent until this is asked again
		}
		done, ops = append(done, a.User), append(ops, op)
	}
	resp, err := elsewhere.Answer(map[string]any{"check_ins": done})
	resp.Ops = ops
	return resp, err
}

// lock gives an account a password that nobody knows, and the operation that ends its loan.
func (c *call) lock(cfg *config, a *account) (secrets.Op, error) {
	password, err := c.password(cfg)
	if err != nil {
		return secrets.Op{}, err
	}
	if err := c.reset(c, cfg, a.User, password); err != nil {
		return secrets.Op{}, err
	}
	free := *a
	free.Loan = nil
	return elsewhere.Put(accountKey(a.User), free)
}

// endLoan ends a loan whose lease ended, or that a crash left half made, or puts that off: nobody else gets the account
// before. One that ended is no error.
func (c *call) endLoan() (*secrets.Response, error) {
	of, err := elsewhere.Find[loan](c, c.view, c.r.Rest)
	if err != nil || of == nil {
		return &secrets.Response{}, err
	}
	resp := &secrets.Response{Ops: []secrets.Op{storage.Delete(c.r.Rest)}}
	a, err := elsewhere.Find[account](c, c.view, accountKey(of.User))
	if err != nil || a == nil || a.Loan == nil || a.Loan.ID != of.ID {
		return resp, err
	}
	var op secrets.Op
	cfg, err := c.config()
	if err == nil {
		op, err = c.lock(cfg, a)
	}
	if err != nil {
		of.Tries++
		op, err = elsewhere.Put(elsewhere.DueKey(loanPrefix, elsewhere.Later(c.r.Now, of.Tries), of.ID), of)
	}
	resp.Ops = append(resp.Ops, op)
	return resp, err
}
