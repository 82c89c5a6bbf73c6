package peering

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"strconv"

	"corbel.dev/corbel/kit/errkind"
)

// Token is what one cluster gives another so that it may connect, once: base64 of its JSON, in the contract's form.
type Token struct {
	// CA are the certificates of those who sign for the servers, PEM; none where servers have no TLS.
	CA []string
	// Manual are the addresses that an operator gave, which come before those that the servers have.
	Manual     []string `json:"ManualServerAddresses"`
	Addresses  []string `json:"ServerAddresses"`
	ServerName string
	PeerID     string
	Secret     string `json:"EstablishmentSecret"`
	Remote     Remote
}

// Encode is the token as it is handed over.
func (t *Token) Encode() string {
	b, _ := json.Marshal(t) // texts have a JSON
	return base64.StdEncoding.EncodeToString(b)
}

// Targets are the addresses to connect to.
func (t *Token) Targets() []string {
	if len(t.Manual) > 0 {
		return t.Manual
	}
	return t.Addresses
}

func badToken(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, "PeeringToken: "+format, args...)
}

// ReadToken reads a token and checks that it can be used. Errors are of kind Invalid.
func ReadToken(text string) (*Token, error) {
	switch {
	case text == "":
		return nil, badToken("is required in the payload")
	case len(text) > maxTokenBytes:
		return nil, badToken("has %d bytes, at most %d are read", len(text), maxTokenBytes)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, badToken("is not base64: copy the whole of it")
	}
	t := &Token{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, badToken("holds no JSON object of a token")
	}
	switch {
	case t.PeerID == "" || len(t.PeerID) > MaxNameBytes:
		return nil, badToken("PeerID is missing or too long")
	case t.Secret == "" || len(t.Secret) > MaxNameBytes*2:
		return nil, badToken("EstablishmentSecret is missing or too long")
	case len(t.CA) > 0 && t.ServerName == "":
		return nil, badToken("ServerName is missing beside CA")
	case len(t.Manual) > maxAddresses || len(t.Addresses) > maxAddresses:
		return nil, badToken("has more than %d addresses", maxAddresses)
	}
	if _, err := Roots(t.CA); err != nil {
		return nil, err
	}
	if len(t.Targets()) == 0 {
		return nil, badToken("ServerAddresses: there is none")
	}
	return t, CheckAddresses("PeeringToken: ServerAddresses", t.Targets())
}

// CheckAddresses says which of the addresses is none of the form host:port.
func CheckAddresses(what string, list []string) error {
	if len(list) > maxAddresses {
		return errkind.Errorf(errkind.Invalid, "%s has %d addresses, at most %d are used", what, len(list), maxAddresses)
	}
	for _, addr := range list {
		host, port, err := net.SplitHostPort(addr)
		n, portErr := strconv.Atoi(port)
		if err != nil || portErr != nil || host == "" || n < 1 || n > 65535 || len(addr) > maxAddrBytes {
			return errkind.Errorf(errkind.Invalid, "%s: %q is not host:port", what, clip(addr))
		}
	}
	return nil
}

// Roots are the certificates that a token names; nil when it names none.
func Roots(pems []string) (*x509.CertPool, error) {
	if len(pems) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	for i, text := range pems {
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, badToken("CA[%d] holds no certificate", i)
		}
	}
	return pool, nil
}
