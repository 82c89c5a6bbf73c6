package sensurest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/users"
)

// showUser is a user without what its password could be found by.
func showUser(_ *request, o monitor.Object) (any, error) {
	u := *o.(*monitor.User)
	u.Password, u.PasswordHash = "", ""
	return &u, nil
}

// admitUser makes a hash of a password that came; one that did not stays what it was.
func admitUser(q *request, old, o monitor.Object) error {
	u := o.(*monitor.User)
	former, _ := old.(*monitor.User)
	switch {
	case u.Password != "":
		hash, err := userRequest{q}.hash(u)
		if err != nil {
			return err
		}
		u.PasswordHash = hash
	case u.PasswordHash != "":
		if err := validHash(u.PasswordHash); err != nil {
			return err
		}
	case former != nil:
		u.PasswordHash = former.PasswordHash
	default:
		return invalid(errors.New("password, or password_hash, must be set"))
	}
	u.Password = ""
	return nil
}

// userRequest answers what is asked of users and their passwords.
type userRequest struct{ *request }

// hash is slow on purpose, so it waits for its turn among the logins.
func (q userRequest) hash(u *monitor.User) (string, error) {
	if err := u.ValidatePassword(); err != nil {
		return "", invalid(err)
	}
	return q.cfg.Users.Hash(q.r.Context(), from(q.r), u.Password)
}

// validHash accepts what bcrypt made.
func validHash(hash string) error {
	if _, err := bcrypt.Cost([]byte(hash)); err != nil {
		return invalid(errors.New("password_hash is not a bcrypt hash"))
	}
	return nil
}

// one answers what is special about users: who is deleted is disabled, groups and passwords are changed one by one,
// and everybody may see itself and change its own password.
func (q userRequest) one() error {
	resource := "users"
	own := q.name == q.who.User && q.name != ""
	get := q.r.Method == http.MethodGet || q.r.Method == http.MethodHead
	ownPassword := len(q.rest) == 1 && (q.rest[0] == "password" || q.rest[0] == "change_password")
	if own && (get && len(q.rest) == 0 || q.r.Method == http.MethodPut && ownPassword) {
		resource = "localselfuser"
	}
	serve := (*request).common
	switch {
	case len(q.rest) == 0 && q.r.Method == http.MethodDelete && q.name != "":
		serve = func(q *request) error {
			return userRequest{q}.edit(func(u *monitor.User) error { u.Disabled = true; return nil })
		}
	case len(q.rest) == 0:
	case q.sub(http.MethodPut, "reinstate"):
		serve = func(q *request) error {
			return userRequest{q}.edit(func(u *monitor.User) error { u.Disabled = false; return nil })
		}
	case q.sub(http.MethodPut, "groups", "*"), q.sub(http.MethodDelete, "groups", "*"), q.sub(http.MethodDelete, "groups"):
		serve = by(userRequest.groups)
	case q.sub(http.MethodPut, "password"), q.sub(http.MethodPut, "change_password"):
		serve = by(userRequest.change)
	case q.sub(http.MethodPut, "reset_password"):
		serve = by(userRequest.reset)
	default:
		return errNotFound
	}
	if err := q.may(q.verb(), resource, "", q.name); err != nil {
		return err
	}
	return serve(q.request)
}

// edit writes a user as change leaves it, and makes it anew when somebody else changed the user meanwhile.
func (q userRequest) edit(change func(*monitor.User) error) error {
	for try := 1; ; try++ {
		item, err := q.find()
		if err != nil {
			return err
		}
		u := *item.Object().(*monitor.User)
		u.Groups = slices.Clone(u.Groups)
		if err := change(&u); err != nil {
			return err
		}
		op := objects.Op{Verb: objects.Put, Type: "users", Name: q.name, Encoded: tagproto.Append(nil, &u), If: item.Index}
		if err = q.cfg.Resources.Write(q.r.Context(), op); err == nil {
			return q.done()
		}
		if !errors.Is(err, objects.ErrPrecondition) || try == patchTries {
			return err
		}
	}
}

func (q userRequest) groups() error {
	return q.edit(func(u *monitor.User) error {
		if len(q.rest) == 1 {
			u.Groups = nil
			return nil
		}
		at := slices.Index(u.Groups, q.rest[1])
		switch {
		case q.r.Method == http.MethodPut && at < 0:
			u.Groups = append(u.Groups, q.rest[1])
		case q.r.Method == http.MethodDelete && at >= 0:
			u.Groups = slices.Delete(u.Groups, at, at+1)
		}
		return nil
	})
}

// change takes the password as it is now with a new one, in plain (change_password) or as a hash (password).
func (q userRequest) change() error {
	var in struct {
		Password string `json:"password"`
		New      string `json:"password_new"`
		Hash     string `json:"password_hash"`
	}
	if err := q.decode(&in); err != nil {
		return err
	}
	if _, err := q.cfg.Users.Login(q.r.Context(), from(q.r), q.name, in.Password); errors.Is(err, users.ErrWrong) {
		return invalid(errors.New("password is not the user's password"))
	} else if err != nil {
		return err
	}
	if in.New != "" {
		hash, err := q.hash(&monitor.User{Password: in.New})
		if err != nil {
			return err
		}
		in.Hash = hash
	}
	return q.set(in.Hash)
}

func (q userRequest) reset() error {
	var in struct {
		Password string `json:"password"`
		Hash     string `json:"password_hash"`
	}
	if err := q.decode(&in); err != nil {
		return err
	}
	if in.Hash == "" && in.Password != "" {
		hash, err := q.hash(&monitor.User{Password: in.Password})
		if err != nil {
			return err
		}
		in.Hash = hash
	}
	return q.set(in.Hash)
}

func (q userRequest) set(hash string) error {
	if hash == "" {
		return invalid(errors.New("password_hash must be set"))
	}
	if err := validHash(hash); err != nil {
		return err
	}
	return q.edit(func(u *monitor.User) error { u.PasswordHash = hash; return nil })
}

func (q *request) decode(into any) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return invalid(err)
	}
	return nil
}
