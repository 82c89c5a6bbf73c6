package issue

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// Method is the RPC by which agents ask a server to sign.
const Method = "mesh.sign"

// AppendPack appends the wire form.
func (r *Request) AppendPack(b []byte) []byte {
	b, mark := pack.Begin(b)
	return pack.End(pack.String(pack.String(b, r.Token), r.CSR), mark)
}

// ReadRequest reads what AppendPack wrote.
func ReadRequest(b []byte) (r Request, err error) {
	rd := pack.Read(b).Record()
	r.Token, r.CSR = rd.String(), rd.String()
	return r, errkind.E(errkind.Invalid, "read a request for a certificate", rd.Err())
}

// AppendPack appends the wire form.
func (c *Certificate) AppendPack(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(pack.String(b, c.SerialNumber), c.CertPEM)
	b = pack.Int(pack.Int(b, c.ValidAfter.Unix()), c.ValidBefore.Unix()) // certificates know whole seconds
	return pack.End(pack.Uint(pack.String(b, c.RootID), c.Index), mark)
}

// ReadCertificate reads what AppendPack wrote.
func ReadCertificate(b []byte) (c Certificate, err error) {
	rd := pack.Read(b).Record()
	c.SerialNumber, c.CertPEM = rd.String(), rd.String()
	c.ValidAfter, c.ValidBefore = time.Unix(rd.Int(), 0).UTC(), time.Unix(rd.Int(), 0).UTC()
	c.RootID, c.Index = rd.String(), rd.Uint()
	if rd.Err() == nil && c.CertPEM == "" {
		return c, errkind.New(errkind.Corrupt, "read a certificate: there is none")
	}
	return c, errkind.E(errkind.Corrupt, "read a certificate", rd.Err())
}

// Serve answers a Method call. who names the asking connection.
func (i *Issuer) Serve(ctx context.Context, who string, req []byte) ([]byte, error) {
	r, err := ReadRequest(req)
	if err != nil {
		return nil, err
	}
	c, err := i.Sign(ctx, who, r)
	if err != nil {
		return nil, err
	}
	return c.AppendPack(nil), nil
}
