package acme

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
)

// States, as the protocol names them.
const (
	statusPending     = "pending"
	statusReady       = "ready"
	statusProcessing  = "processing"
	statusValid       = "valid"
	statusInvalid     = "invalid"
	statusDeactivated = "deactivated"
)

// account is a client's key, under "acme/accounts/<id>"; "acme/keys/<thumbprint>/<directory>" has its id.
type account struct {
	ID      string          `json:"id"`
	Key     json.RawMessage `json:"key"`
	Dir     string          `json:"dir"` // Directory.Prefix
	Status  string          `json:"status"`
	Contact []string        `json:"contact,omitempty"`
	EAB     string          `json:"eab,omitempty"`
	Made    time.Time       `json:"created"`
}

const (
	accountPrefix = "acme/accounts/"
	contactsMost  = 16
	contactBytes  = 256
)

// printKey is where the account of a key stands.
func (c *call) printKey(k *key) string {
	return "acme/keys/" + k.print + "/" + strings.ReplaceAll(strings.TrimSuffix(c.dir.Prefix(), "/"), "/", "|")
}

// account reads one of this directory's.
func (c *call) account(id string) (*account, error) {
	a, err := get[account](c, c.view, accountPrefix+id)
	if err == nil && (a == nil || a.Dir != c.dir.Prefix()) {
		err = problem(http.StatusBadRequest, "accountDoesNotExist", "the account is none of this directory's")
	}
	return a, err
}

func (c *call) showAccount(status int, a *account) (*secrets.Response, error) {
	at := c.base + "account/" + a.ID
	out := map[string]any{"status": a.Status, "orders": at + "/orders"}
	if len(a.Contact) > 0 {
		out["contact"] = a.Contact
	}
	return c.object(status, out, "Location", at)
}

// contacts checks what an account says of who owns it.
func contacts(list []string) error {
	if len(list) > contactsMost {
		return problem(http.StatusBadRequest, "invalidContact", "an account has at most %d contacts", contactsMost)
	}
	for _, text := range list {
		if len(text) > contactBytes || !strings.HasPrefix(text, "mailto:") {
			return problem(http.StatusBadRequest, "unsupportedContact", "contacts are like mailto:ops@example.com")
		}
	}
	return nil
}

func (c *call) newAccount() (*secrets.Response, error) {
	var in struct {
		Contact  []string        `json:"contact"`
		Existing bool            `json:"onlyReturnExisting"`
		Binding  json.RawMessage `json:"externalAccountBinding"`
	}
	if _, err := c.payload(&in); err != nil {
		return nil, err
	}
	id, err := get[string](c, c.view, c.printKey(c.msg.key))
	if err != nil {
		return nil, err
	}
	if id != nil {
		a, err := c.account(*id)
		if err != nil {
			return nil, err
		}
		if a.Status != statusValid {
			return nil, problem(http.StatusUnauthorized, "unauthorized", "the account is %s", a.Status)
		}
		return c.showAccount(http.StatusOK, a)
	}
	if in.Existing {
		return nil, problem(http.StatusBadRequest, "accountDoesNotExist", "no account has this key")
	}
	if err := contacts(in.Contact); err != nil {
		return nil, err
	}
	a := &account{ID: uuid.NewString(), Key: c.msg.key.raw, Dir: c.dir.Prefix(), Status: statusValid, Contact: in.Contact,
		Made: c.r.Now.UTC()}
	if a.EAB, err = c.bound(in.Binding); err != nil {
		return nil, err
	}
	if err := c.put(c.printKey(c.msg.key), a.ID); err != nil {
		return nil, err
	}
	if err := c.put(accountPrefix+a.ID, a); err != nil {
		return nil, err
	}
	return c.showAccount(http.StatusCreated, a)
}

// mine refuses what is another account's.
func (c *call) mine(id string) error {
	if id != c.acct.ID {
		return problem(http.StatusUnauthorized, "unauthorized", "the account is another than the one that signed")
	}
	return nil
}

func (c *call) updateAccount() (*secrets.Response, error) {
	if err := c.mine(c.parts[1]); err != nil {
		return nil, err
	}
	var in struct {
		Contact *[]string `json:"contact"`
		Status  string    `json:"status"`
	}
	empty, err := c.payload(&in)
	if err != nil || empty {
		if err != nil {
			return nil, err
		}
		return c.showAccount(http.StatusOK, c.acct)
	}
	a := *c.acct
	switch in.Status {
	case "", statusValid:
	case statusDeactivated:
		a.Status = statusDeactivated
	default:
		return nil, malformed("status can be set to deactivated alone")
	}
	if in.Contact != nil {
		if err := contacts(*in.Contact); err != nil {
			return nil, err
		}
		a.Contact = *in.Contact
	}
	if err := c.put(accountPrefix+a.ID, a); err != nil {
		return nil, err
	}
	return c.showAccount(http.StatusOK, &a)
}

// changeKey gives the account another key, which signs that it wants to be it.
func (c *call) changeKey() (*secrets.Response, error) {
	var j struct{ Protected, Payload, Signature string }
	if _, err := c.payload(&j); err != nil {
		return nil, err
	}
	m, err := parseMessage(j.Protected, j.Payload, j.Signature)
	if err != nil {
		return nil, err
	}
	if m.key == nil || m.head.URL != c.msg.head.URL {
		return nil, malformed("the inner object must have the new jwk and the same url")
	}
	if err := m.signedBy(m.key); err != nil {
		return nil, err
	}
	var in struct {
		Account string          `json:"account"`
		Old     json.RawMessage `json:"oldKey"`
	}
	now, err := parseKey(c.acct.Key)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(m.payload, &in) != nil || in.Account != c.base+"account/"+c.acct.ID {
		return nil, malformed("the inner object names another account")
	}
	if old, err := parseKey(in.Old); err != nil || !old.same(now.public) {
		return nil, malformed("oldKey is not the account's")
	}
	taken, err := get[string](c, c.view, c.printKey(m.key))
	if err != nil {
		return nil, err
	}
	if taken != nil {
		return nil, problem(http.StatusConflict, "malformed", "another account has this key")
	}
	a := *c.acct
	a.Key = m.key.raw
	c.ops = append(c.ops, storage.Delete(c.printKey(now)))
	if err := c.put(c.printKey(m.key), a.ID); err != nil {
		return nil, err
	}
	if err := c.put(accountPrefix+a.ID, a); err != nil {
		return nil, err
	}
	return c.showAccount(http.StatusOK, &a)
}
