package aws

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

func newDesk(t *testing.T) *enginetest.Desk {
	t.Helper()
	return enginetest.New(t, &Engine{}, "auth/aws/")
}

func with(of body, change body) body {
	out := maps.Clone(of)
	maps.Copy(out, change)
	return out
}

// sts answers as AWS' STS was recorded to, once a request is what it gave signers.
func sts(t *testing.T) (address string, arn *atomic.Value, asked *atomic.Int32) {
	t.Helper()
	arn, asked = &atomic.Value{}, &atomic.Int32{}
	arn.Store("arn:aws:sts::123456789012:assumed-role/deployer/i-0123456789abcdef0")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/xml")
		switch {
		case err != nil || r.Method != http.MethodPost || r.URL.Path != "/" || r.Host != "sts.amazonaws.com" ||
			string(text) != "Action=GetCallerIdentity&Version=2011-06-15":
			w.WriteHeader(http.StatusBadRequest)
		case r.Header.Get("Authorization") == "away":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get("Authorization") == "odd":
			_, _ = io.WriteString(w, "<GetSessionTokenResponse><GetCallerIdentityResult><Arn>"+
				"arn:aws:iam::123456789012:user/root</Arn><Account>123456789012</Account></GetCallerIdentityResult>"+
				"</GetSessionTokenResponse>")
		case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=ASIA"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>`+
				`<Type>Sender</Type><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>`)
		default:
			_, _ = fmt.Fprintf(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <GetCallerIdentityResult>
    <Arn>%s</Arn>
    <UserId>AROAEXAMPLE:i-0123456789abcdef0</UserId>
    <Account>123456789012</Account>
  </GetCallerIdentityResult>
  <ResponseMetadata><RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId></ResponseMetadata>
</GetCallerIdentityResponse>`, arn.Load())
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, arn, asked
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// signed is a login as the vault command and the agents send it.
func signed(headers body) body {
	all := body{"Authorization": []string{"AWS4-HMAC-SHA256 Credential=ASIAEXAMPLE/20261101/us-east-1/sts/aws4_request, " +
		"SignedHeaders=content-length;content-type;host;x-amz-date;x-vault-aws-iam-server-id, Signature=00"},
		"Content-Type": []string{"application/x-www-form-urlencoded; charset=utf-8"}, "Content-Length": []string{"43"},
		"Host": []string{"sts.amazonaws.com"}, "X-Amz-Date": []string{"20261101T100000Z"},
		"X-Amz-Security-Token": "token", "User-Agent": "aws-sdk-go"}
	maps.Copy(all, headers)
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return body{"role": "deploy", "iam_http_request_method": "POST", "iam_request_url": b64("https://sts.amazonaws.com/"),
		"iam_request_body":    b64("Action=GetCallerIdentity&Version=2011-06-15"),
		"iam_request_headers": b64(string(text))}
}

// TestIAM: who STS says signed the request logs in; requests that might ask it something else never reach it.
func TestIAM(t *testing.T) {
	address, arn, asked := sts(t)
	d := newDesk(t)
	d.Refused(errkind.Invalid, "not found", secrets.Update, "login", signed(nil))
	d.OK(secrets.Update, "role/deploy", body{"auth_type": "iam", "token_policies": "app", "token_ttl": "20m",
		"bound_iam_principal_arn": "arn:aws:iam::123456789012:role/deployer,arn:aws:iam::123456789012:user/ops-*"})
	d.OK(secrets.Update, "config/client", body{"sts_endpoint": address, "secret_key": "hidden-word"})
	if got := fmt.Sprint(d.OK(secrets.Read, "config/client", nil)); strings.Contains(got, "hidden-word") {
		t.Error(got)
	}
	login := func(b body) *secrets.Auth {
		t.Helper()
		resp, err := d.Ask(secrets.Update, "login", b)
		if err != nil || resp.Auth == nil {
			t.Fatalf("%v: %v", b, err)
		}
		return resp.Auth
	}
	a := login(signed(nil))
	roleID := d.OK(secrets.Read, "role/deploy", nil).Text("role_id")
	if a.Alias != roleID || roleID == "" || !slices.Equal(a.Policies, []string{"app"}) ||
		a.Metadata["canonical_arn"] != "arn:aws:iam::123456789012:role/deployer" ||
		a.Metadata["client_user_id"] != "AROAEXAMPLE" || a.Metadata["account_id"] != "123456789012" {
		t.Errorf("%+v", a)
	}
	for alias, want := range map[string]string{"unique_id": "AROAEXAMPLE",
		"canonical_arn": "arn:aws:iam::123456789012:role/deployer", "full_arn": arn.Load().(string)} {
		d.OK(secrets.Update, "config/identity", body{"iam_alias": alias})
		if got := login(signed(nil)).Alias; got != want {
			t.Errorf("%s: %s", alias, got)
		}
	}
	arn.Store("arn:aws:iam::123456789012:user/path/ops-ann")
	login(signed(nil))
	for _, other := range []string{"arn:aws:iam::123456789012:user/dev", "arn:aws:sts::123456789012:assumed-role/other/x",
		"arn:aws:iam::123456789012:root", "arn:aws:sts::123456789012:federated-user/deployer",
		"arn:aws:iam::210987654321:user/ops-ann", "nonsense"} {
		arn.Store(other)
		d.Refused(errkind.Invalid, "", secrets.Update, "login", signed(nil))
	}
	arn.Store("arn:aws:iam::123456789012:user/ops-ann")

	before := asked.Load()
	for field, b := range map[string]body{
		"must be POST":     with(signed(nil), body{"iam_http_request_method": "GET"}),
		"address of STS":   with(signed(nil), body{"iam_request_url": b64("https://sts.amazonaws.com/?Action=x")}),
		"iam_request_body": with(signed(nil), body{"iam_request_body": b64("Action=GetSessionToken&Version=2011-06-15")}),
		"must be Action": with(signed(nil), body{"iam_request_body": b64(
			"Action=GetCallerIdentity&Action=GetSessionToken&Version=2011-06-15")}),
		"must be base64":                 with(signed(nil), body{"iam_request_body": "!"}),
		"invalid request header: Accept": signed(body{"Accept": "application/json"}),
		"header: X-Amz-Target":           signed(body{"X-Amz-Target": "x"}),
		"line end":                       signed(body{"User-Agent": "a\r\nX: y"}),
		"must have one value":            signed(body{"Host": []string{"a", "b"}}),
		"Authorization is missing":       signed(body{"Authorization": ""}),
		"Content-Type":                   signed(body{"Content-Type": "application/json"}),
		"iam_request_headers":            with(signed(nil), body{"iam_request_headers": "x"}),
		"\"role\"":                       with(signed(nil), body{"role": ""}),
		"required authentication values": {"role": "deploy"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "login", b)
	}
	if asked.Load() != before {
		t.Error("STS was asked about a request that might not be GetCallerIdentity")
	}
	d.Refused(errkind.Invalid, "SignatureDoesNotMatch", secrets.Update, "login", signed(body{"Authorization": "x"}))
	d.Refused(errkind.Invalid, "no GetCallerIdentityResponse", secrets.Update, "login",
		signed(body{"Authorization": "odd"}))
	d.Refused(errkind.Unavailable, "503", secrets.Update, "login", signed(body{"Authorization": "away"}))

	// A request that was signed for another server is none for this one.
	d.OK(secrets.Update, "config/client", body{"iam_server_id_header_value": "vault.example.com"})
	d.Refused(errkind.Invalid, "expected \"vault.example.com\"", secrets.Update, "login", signed(nil))
	login(signed(body{serverID: "vault.example.com"}))
	d.Refused(errkind.Invalid, "not among the SignedHeaders", secrets.Update, "login",
		signed(body{serverID: "vault.example.com",
			"Authorization": "AWS4-HMAC-SHA256 Credential=ASIAX, SignedHeaders=host;x-amz-date, Signature=00"}))

	// A renewal goes by the role of now.
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, engine.Login{Data: a.Login}); err != nil ||
		terms.TTL != 20*time.Minute {
		t.Errorf("%+v, %v", terms, err)
	}
	d.OK(secrets.Update, "role/deploy", body{"bound_iam_principal_arn": "arn:aws:iam::123456789012:user/*"})
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, engine.Login{Data: a.Login}); err == nil {
		t.Error("a principal that the role has no more renews")
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEC2 judges documents of the form that the metadata service of a machine gives, PKCS 7 in BER with DSA or RSA and
// a signature apart; the certificates are the tests' own.
func TestEC2(t *testing.T) {
	d := newDesk(t)
	ask := func(b body) (*secrets.Auth, error) {
		t.Helper()
		_, err := d.Ask(secrets.Update, "login", b)
		alone := engine.Alone("")
		if !errors.As(err, &alone) {
			return nil, err
		}
		if alone != "identity-accesslist/i-0123456789abcdef0" {
			t.Errorf("alone with %s", alone)
		}
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.Engine.Handle(t.Context(), d.Store, &secrets.Request{Op: secrets.Update, Path: "auth/aws/login",
			Mount: "auth/aws/", Rest: "login", Body: raw, Now: d.Now(), Alone: true})
		if err != nil {
			return nil, err
		}
		return resp.Auth, d.Store.Commit(t.Context(), 0, resp.Ops)
	}
	refused := func(text string, b body) {
		t.Helper()
		if _, err := ask(b); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	d.OK(secrets.Update, "role/web", body{"auth_type": "ec2", "bound_ami_id": "ami-0abc",
		"bound_account_id": "123456789012", "bound_region": "eu-central-1"})
	dsa := body{"role": "web", "pkcs7": testdata(t, "dsa.p7.txt")}
	refused("config/certificate/NAME", dsa)
	d.OK(secrets.Update, "config/certificate/frankfurt", body{"aws_public_cert": b64(testdata(t, "rsa.crt"))})
	refused("signed by none of the certificates", dsa)
	d.OK(secrets.Update, "config/certificate/all", body{"aws_public_cert": testdata(t, "dsa.crt")})
	a, err := ask(dsa)
	if err != nil {
		t.Fatal(err)
	}
	nonce := a.Metadata["nonce"]
	if a.Metadata["instance_id"] != "i-0123456789abcdef0" || a.Metadata["region"] != "eu-central-1" || nonce == "" ||
		a.AliasMeta["nonce"] != "" {
		t.Errorf("%+v", a)
	}
	// Whoever reads the document later has no nonce.
	refused("nonce mismatch", dsa)
	refused("nonce mismatch", with(dsa, body{"nonce": "guess"}))
	if got, err := ask(with(dsa, body{"nonce": nonce})); err != nil || got.Metadata["nonce"] != "" {
		t.Errorf("%+v, %v", got, err)
	}
	record := fmt.Sprint(d.OK(secrets.Read, "identity-accesslist/i-0123456789abcdef0", nil))
	if strings.Contains(record, nonce) {
		t.Error(record)
	}
	if got := d.OK(secrets.List, "identity-accesslist/", nil); fmt.Sprint(got["keys"]) != "[i-0123456789abcdef0]" {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Delete, "identity-accesslist/i-0123456789abcdef0", nil)
	if _, err := ask(body{"role": "web", "pkcs7": "-----BEGIN PKCS7-----\n" + testdata(t, "rsa.p7.txt") +
		"-----END PKCS7-----", "nonce": "own"}); err != nil {
		t.Error(err)
	}

	apart := body{"role": "web", "identity": b64(testdata(t, "document.json")), "signature": testdata(t, "rsa.sig.txt"),
		"nonce": "own"}
	refused("type identity", apart)
	d.OK(secrets.Update, "config/certificate/frankfurt", body{"type": "identity"})
	if _, err := ask(apart); err != nil {
		t.Error(err)
	}
	refused("none of the certificates", with(apart, body{"identity": b64(strings.Replace(testdata(t, "document.json"),
		"ami-0abc", "ami-0abd", 1))}))
	refused("must both be given", with(apart, body{"signature": ""}))
	for text, change := range map[string]body{"AMI ID": {"bound_ami_id": "ami-1"}, "account ID": {"bound_account_id": "1"},
		"region": {"bound_region": "us-east-1"}, "instance ID": {"bound_ec2_instance_id": "i-1"}} {
		d.OK(secrets.Update, "role/other", with(body{"auth_type": "ec2", "bound_ami_id": "ami-0abc",
			"bound_account_id": "123456789012", "bound_region": "eu-central-1", "bound_ec2_instance_id": ""}, change))
		refused(text, with(dsa, body{"role": "other"}))
	}
	d.OK(secrets.Update, "role/web", body{"disallow_reauthentication": true})
	refused("reauthentication is disabled", apart)
	d.OK(secrets.Update, "role/ami-0abc", body{"auth_type": "ec2", "bound_ami_id": "ami-0abc"})
	if _, err := ask(body{"identity": apart["identity"], "signature": apart["signature"], "nonce": "own"}); err != nil {
		t.Error(err)
	}
	refused("not allowed for role", with(signed(nil), body{"role": "web"}))

	for field, b := range map[string]body{"auth_type": {"auth_type": "x"}, "bound_iam_principal_arn": {},
		"bound_vpc_id": {"auth_type": "ec2", "bound_vpc_id": "vpc-1"}, "bound_ami_id": {"auth_type": "ec2",
			"bound_region": "eu-central-1"}, "resolve_aws_unique_ids": {"bound_iam_principal_arn": "arn:aws:iam::1:role/x",
			"resolve_aws_unique_ids": true}, "at its end alone": {"bound_iam_principal_arn": "arn:*:role/x"}} {
		d.Refused(errkind.Invalid, field, secrets.Update, "role/bad", b)
	}
	d.Refused(errkind.Invalid, "delete the role first", secrets.Update, "role/web", body{"auth_type": "iam"})
	d.Refused(errkind.Invalid, "aws_public_cert", secrets.Update, "config/certificate/x", body{"aws_public_cert": "x"})
	for field, value := range map[string]any{"sts_endpoint": "x", "sts_region": "a/b", "sts_ca_pem": "x"} {
		d.Refused(errkind.Invalid, field, secrets.Update, "config/client", body{field: value})
	}
}

func TestEndpoint(t *testing.T) {
	for want, c := range map[string]client{"https://sts.amazonaws.com/": {},
		"https://sts.eu-central-1.amazonaws.com/": {Region: "eu-central-1"}, "http://sts/": {STS: "http://sts"}} {
		if got := c.endpoint(); got != want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// FuzzPKCS7: whatever a message holds, no byte of what AWS signed can change, and nothing ends the test.
func FuzzPKCS7(f *testing.F) {
	raw, err := base64.StdEncoding.DecodeString(squeezed(readFile(f, "dsa.p7.txt")))
	if err != nil {
		f.Fatal(err)
	}
	c := certificate{PEM: readFile(f, "dsa.crt")}
	key, err := c.key()
	if err != nil {
		f.Fatal(err)
	}
	document := readFile(f, "document.json")
	if got, err := signedContent(raw, []any{key}); err != nil || string(got) != document {
		f.Fatalf("%s, %v", got, err)
	}
	for at := 0; at < len(raw); at += 97 {
		changed := slices.Clone(raw)
		changed[at] ^= 1
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, err := signedContent(raw, []any{key}); err == nil && string(got) != document {
			t.Errorf("%q was found good", got)
		}
	})
}

func readFile(f *testing.F, name string) string {
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		f.Fatal(err)
	}
	return string(text)
}
