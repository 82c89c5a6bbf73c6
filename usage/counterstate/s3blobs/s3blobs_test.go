package s3blobs

import (
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/s3bucket"
	"corbel.dev/corbel/kit/s3bucket/s3test"
	"corbel.dev/corbel/usage/counterstate"
	"corbel.dev/corbel/usage/counterstate/blobstest"
)

func open(t *testing.T, url string) *Blobs {
	t.Helper()
	b, err := New(s3bucket.Config{Endpoint: url, Region: "eu-1", Bucket: s3test.Bucket, Path: "/usage/", AccessKey: "id",
		SecretKey: "secret", PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// TestBlobs is the kit against a service in this process.
func TestBlobs(t *testing.T) {
	s := s3test.New()
	server := httptest.NewServer(s)
	defer server.Close()
	again := func(t *testing.T) counterstate.Blobs { return open(t, server.URL) }
	blobstest.Run(t, again, again)
	if err := open(t, server.URL).Check(t.Context()); err != nil {
		t.Error(err)
	}
	s.Careless = true
	if err := open(t, server.URL).Check(t.Context()); !errkind.Is(err, errkind.Invalid) {
		t.Error("a service that takes no notice of conditions: ", err)
	}
	if _, err := New(s3bucket.Config{}); !errkind.Is(err, errkind.Invalid) {
		t.Error(err)
	}
}
