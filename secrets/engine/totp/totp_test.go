package totp

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"image/png"
	"net/url"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

func newDesk(t testing.TB) *enginetest.Desk { return enginetest.New(t, &Engine{}, "totp/") }

// at makes it the time t, in seconds, by the desk's clock.
func at(d *enginetest.Desk, t int64) { d.Wait(time.Unix(t, 0).Sub(d.Now())) }

// TestVectors holds the codes of RFC 6238, appendix B.
func TestVectors(t *testing.T) {
	seeds := map[string]string{"SHA1": "12345678901234567890", "SHA256": "12345678901234567890123456789012",
		"SHA512": "1234567890123456789012345678901234567890123456789012345678901234"}
	for _, v := range []struct {
		time      int64
		algorithm string
		code      string
	}{
		{59, "SHA1", "94287082"}, {59, "SHA256", "46119246"}, {59, "SHA512", "90693936"},
		{1111111109, "SHA1", "07081804"}, {1234567890, "SHA256", "91819424"}, {2000000000, "SHA512", "38618901"},
	} {
		d := newDesk(t)
		at(d, v.time)
		secret := base32.StdEncoding.EncodeToString([]byte(seeds[v.algorithm]))
		d.OK(secrets.Update, "keys/k", body{"key": secret, "digits": 8, "algorithm": v.algorithm})
		if got := d.OK(secrets.Read, "code/k", nil).Text("code"); got != v.code {
			t.Errorf("%s at %d: %s, want %s", v.algorithm, v.time, got, v.code)
		}
	}
}

// TestCodesAreGoodOnce: a code is taken within its skew and never again.
func TestCodesAreGoodOnce(t *testing.T) {
	d := newDesk(t)
	at(d, 3_000_000_010)
	d.OK(secrets.Update, "keys/k", body{"key": "JBSWY3DPEHPK3PXP", "issuer": "us", "account_name": "ann"})
	code := func() string { return d.OK(secrets.Read, "code/k", nil).Text("code") }
	ask := func(code string) any { return d.OK(secrets.Update, "code/k", body{"code": code})["valid"] }
	old := code()
	if ask("000000") != false || ask(old) != true {
		t.Error("a code was not judged")
	}
	d.Refused(errkind.Invalid, "code already used", secrets.Update, "code/k", body{"code": old})
	d.Wait(30 * time.Second)
	d.Refused(errkind.Invalid, "code already used", secrets.Update, "code/k", body{"code": old})
	if ask(code()) != true {
		t.Error("the next code was not taken")
	}
	d.Wait(30 * time.Second)
	if ask(old) != false {
		t.Error("a code beyond the skew was taken")
	}
	d.OK(secrets.Update, "keys/k", body{"key": "JBSWY3DPEHPK3PXP", "skew": 0})
	last := code()
	d.Wait(30 * time.Second)
	if ask(last) != false {
		t.Error("a code of the last step was taken without skew")
	}
	for range 20 { // what is kept of taken codes does not grow
		d.Wait(30 * time.Second)
		ask(code())
	}
	if raw, _, _ := d.Store.Get(t.Context(), "used/k"); len(raw) > 60 {
		t.Errorf("%s is kept of taken codes", raw)
	}
	d.Refused(errkind.Invalid, "unknown key: no", secrets.Read, "code/no", nil)
	d.Refused(errkind.Invalid, "the code value is required", secrets.Update, "code/k", body{})
}

// TestGenerate: a key that is made here is shown once, as URL and picture; its codes are those of the URL's secret.
func TestGenerate(t *testing.T) {
	d := newDesk(t)
	got := d.OK(secrets.Update, "keys/made", body{"generate": true, "issuer": "Corbel", "account_name": "ann@example.com",
		"period": "60s", "digits": "8"})
	u, err := url.Parse(got.Text("url"))
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/Corbel:ann@example.com" ||
		u.Query().Get("period") != "60" || u.Query().Get("digits") != "8" || u.Query().Get("issuer") != "Corbel" {
		t.Errorf("%s, %v", got.Text("url"), err)
	}
	raw, err := base64.StdEncoding.DecodeString(got.Text("barcode"))
	if picture, bad := png.Decode(bytes.NewReader(raw)); err != nil || bad != nil || picture.Bounds().Dx() != 200 {
		t.Errorf("the picture: %v, %v", err, bad)
	}
	d.OK(secrets.Update, "keys/theirs", body{"url": u.String()})
	if mine, theirs := d.OK(secrets.Read, "code/made", nil), d.OK(secrets.Read, "code/theirs", nil); mine.Text("code") !=
		theirs.Text("code") || len(mine.Text("code")) != 8 {
		t.Errorf("%v and %v", mine, theirs)
	}
	shown := d.OK(secrets.Read, "keys/theirs", nil)
	if len(shown) != 5 || shown["account_name"] != "ann@example.com" || shown["issuer"] != "Corbel" ||
		shown["period"] != 60.0 || shown["digits"] != 8.0 || shown["algorithm"] != "SHA1" {
		t.Errorf("%v", shown)
	}
	if quiet := d.OK(secrets.Update, "keys/quiet", body{"generate": true, "exported": false, "issuer": "i",
		"account_name": "a"}); len(quiet) != 0 {
		t.Errorf("a key that is not exported was shown: %v", quiet)
	}
	if list := d.OK(secrets.List, "keys", nil); len(list["keys"].([]any)) != 3 {
		t.Error(list)
	}
	d.OK(secrets.Delete, "keys/made", nil)
	d.Refused(errkind.NotFound, "", secrets.Read, "keys/made", nil)
}

// TestRefusals: what a key must have, by name.
func TestRefusals(t *testing.T) {
	d := newDesk(t)
	made := func(more body) body {
		b := body{"generate": true, "issuer": "i", "account_name": "a"}
		for name, v := range more {
			b[name] = v
		}
		return b
	}
	for text, b := range map[string]body{
		"key should not be passed":   made(body{"key": "JBSWY3DPEHPK3PXP"}),
		"url should not be passed":   made(body{"url": "otpauth://totp/x?secret=JBSWY3DPEHPK3PXP"}),
		"issuer value is required":   made(body{"issuer": ""}),
		"account_name value":         made(body{"account_name": ""}),
		"algorithm value":            made(body{"algorithm": "MD5"}),
		"digits value":               made(body{"digits": 7}),
		"period value":               made(body{"period": 0}),
		"at most 24h":                made(body{"period": "1000h"}),
		"skew value":                 made(body{"skew": 2}),
		"key_size value":             made(body{"key_size": 1 << 30}),
		"qr_size value must be":      made(body{"qr_size": 1 << 30}),
		"qr_size value is too small": made(body{"qr_size": 1}),
		"the key value is required":  {},
		"must be base32":             {"key": "not base32!"},
		"longer than":                {"key": strings.Repeat("A", 4096)},
		"must begin with otpauth":    {"url": "https://example.com"},
		"required in the url":        {"url": "otpauth://totp/x"},
		"digits value of the url":    {"url": "otpauth://totp/x?secret=JBSWY3DPEHPK3PXP&digits=many"},
		"field \"digits\"":           {"key": "JBSWY3DPEHPK3PXP", "digits": "six"},
		"failed to parse JSON":       nil,
	} {
		var given any = b
		if b == nil {
			given = []byte("{")
		}
		d.Refused(errkind.Invalid, text, secrets.Update, "keys/k", given)
	}
	d.Refused(errkind.NotFound, "unsupported path", secrets.Read, "nothing/k", nil)
	d.Refused(errkind.NotFound, "unsupported path", secrets.Read, "keys/a/b", nil)
	d.Refused(errkind.Conflict, "unsupported operation", secrets.Delete, "code/k", nil)
	d.Refused(errkind.NotFound, "", secrets.List, "keys", nil)
}

// FuzzURL: no URL of an authenticator app makes the engine panic, and what it takes has codes.
func FuzzURL(f *testing.F) {
	f.Add("otpauth://totp/Corbel:ann?secret=JBSWY3DPEHPK3PXP&issuer=Corbel&period=30&digits=6&algorithm=SHA256")
	f.Add("otpauth://totp/%zz?secret=A")
	f.Fuzz(func(t *testing.T, text string) {
		o := order{key: key{Period: 30, Digits: 6, Skew: 1, Algorithm: "SHA1"}, url: text, keySize: 20, qrSize: 200}
		if _, err := o.fill(); err != nil {
			return
		}
		if code, err := o.Code(o.Step(time.Unix(1, 0))); err != nil || len(code) != o.Digits {
			t.Errorf("%q was taken: %q, %v", text, code, err)
		}
	})
}
