package diagnosis

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"time"
)

// The bounds. Vault's documentation has those of disks and certificates; it asks for 1,024,768 open files, which few
// systems give and a server whose connections take one each does not need.
const (
	leastFiles      = 65536
	leastFreeBytes  = 1 << 30
	leastFreeShare  = 0.05
	expiresSoon     = 30 * 24 * time.Hour
	othersMayUse    = fs.FileMode(0o007)
	gibibyte        = 1 << 30
	dateAndTimeForm = "2006-01-02 15:04 MST"
)

// OpenFiles judges how many files a process may have open.
func OpenFiles(limit uint64) *Check {
	c := New("Check Open File Limit", "%d open files are allowed.", limit)
	if limit < leastFiles {
		return c.As(Warn).Advise("Each connection takes one: raise it to %d or more, with LimitNOFILE= of the service or "+
			"ulimit -n.", leastFiles)
	}
	return c
}

// Disk judges the room in the file system of a path, in bytes.
func Disk(path string, free, total uint64) *Check {
	share := 0.0
	if total > 0 {
		share = float64(free) / float64(total)
	}
	c := New("Check Disk Usage", "%s: %.1f of %.1f GiB are free (%.0f %%).", path, float64(free)/gibibyte,
		float64(total)/gibibyte, share*100)
	switch {
	case free == 0:
		return c.As(Fail).Advise("Make room: nothing can be written.")
	case free < leastFreeBytes || share < leastFreeShare:
		return c.As(Warn).Advise("Keep 1 GiB and 5 %% of the disk free.")
	}
	return c
}

// Folder judges who may get at a storage's folder; writable is whether whoever asks may use it.
func Folder(path string, mode fs.FileMode, link, writable bool) *Check {
	c := New("Check Folder Permissions", "%s has the mode %s.", path, mode)
	switch {
	case !mode.IsDir():
		return c.As(Fail).Advise("It must be a folder.")
	case !writable:
		return c.As(Fail).Advise("Whoever runs this command may not read and write in it: run it as the server's user, or " +
			"give the folder to that one.")
	case mode&othersMayUse != 0:
		return c.As(Warn).Advise("Others may get at it: chmod o-rwx %s", path)
	case link:
		return c.As(Warn).Advise("It is a symbolic link: make sure that it always leads to the same disk.")
	}
	return c
}

// Chain judges the certificates of a file, the server's first, at a time.
func Chain(name, file string, chain []*x509.Certificate, now time.Time) *Check {
	c := New(name, "%s", file)
	if len(chain) == 0 {
		return c.As(Fail).Advise("It holds no certificate.")
	}
	for i, cert := range chain {
		one := life(cert, now)
		if i == 0 && len(cert.ExtKeyUsage) > 0 && !serves(cert) {
			one.Warnings = append(one.Warnings, "it is not for servers: clients will refuse it")
		}
		if i == 0 && len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.URIs) == 0 {
			one.Warnings = append(one.Warnings, "it has no alternative names: clients will refuse it")
		}
		if i+1 < len(chain) && cert.CheckSignatureFrom(chain[i+1]) != nil {
			one.Warnings = append(one.Warnings, fmt.Sprintf("the next certificate of the file, %q, did not sign it: clients "+
				"may not find the way to their root", chain[i+1].Subject.String()))
		}
		c.Add(one)
	}
	return c
}

// Authorities judges the certificates that those of clients are checked by.
func Authorities(name, file string, list []*x509.Certificate, now time.Time) *Check {
	c := New(name, "%s", file)
	if len(list) == 0 {
		return c.As(Fail).Advise("It holds no certificate.")
	}
	for _, cert := range list {
		one := life(cert, now)
		if !cert.IsCA {
			one.As(Fail).Advise("It is not an authority's: no client's certificate can be signed by it.")
		}
		c.Add(one)
	}
	return c
}

// life judges from when to when a certificate holds.
func life(cert *x509.Certificate, now time.Time) *Check {
	c := New("Certificate "+cert.Subject.String(), "valid from %s to %s.", cert.NotBefore.Format(dateAndTimeForm),
		cert.NotAfter.Format(dateAndTimeForm))
	switch {
	case now.After(cert.NotAfter):
		return c.As(Fail).Advise("It has expired: put a new one in its place.")
	case now.Before(cert.NotBefore):
		return c.As(Fail).Advise("It does not hold yet: is this host's clock right?")
	case cert.NotAfter.Sub(now) < expiresSoon:
		return c.As(Warn).Advise("It expires within a month: renew it.")
	}
	return c
}

func serves(cert *x509.Certificate) bool {
	for _, use := range cert.ExtKeyUsage {
		if use == x509.ExtKeyUsageServerAuth || use == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}
