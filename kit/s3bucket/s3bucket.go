// Package s3bucket is a bucket of the S3 protocol for those who keep state in it: objects that are made only where
// there is none, replaced only as they were read, and listed in order.
//
// Writes carry If-None-Match or If-Match, which the service enforces (Amazon S3 does since 2024); a service
// that ignores them would make two writers at once, so whoever opens one asks Check first.
package s3bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"corbel.dev/corbel/kit/errkind"
)

// Config says where.
type Config struct {
	// Endpoint is host:port or a URL; default Amazon's.
	Endpoint string
	Region   string
	Bucket   string
	Path     string // prefix of the keys
	// AccessKey and SecretKey sign the requests; without them they come from the environment, the shared credentials
	// file, or the instance's role.
	AccessKey, SecretKey, SessionToken string
	PathStyle                          bool   // the bucket is in the path, not in the host's name
	Plain                              bool   // HTTP
	KMSKey                             string // encrypts at rest
	// Transport replaces the network's defaults in tests.
	Transport http.RoundTripper
}

// Bucket is one.
type Bucket struct {
	cfg Config
	sse encrypt.ServerSide
	cl  *minio.Core
}

// New makes a bucket. It does no network.
func New(cfg Config) (*Bucket, error) {
	if cfg.Bucket == "" {
		return nil, errors.New("bucket: is missing")
	}
	if (cfg.AccessKey == "") != (cfg.SecretKey == "") {
		return nil, errors.New("access_key and secret_key belong together: one is missing")
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = "s3.amazonaws.com"
	}
	secure := !cfg.Plain
	if u, err := url.Parse(cfg.Endpoint); err == nil && u.Host != "" {
		cfg.Endpoint, secure = u.Host, u.Scheme == "https"
	}
	if cfg.Path = strings.Trim(cfg.Path, "/"); cfg.Path != "" {
		cfg.Path += "/"
	}
	if cfg.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
		cfg.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 15 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
			DisableCompression: true}
	}
	b := &Bucket{cfg: cfg}
	creds := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{}, &credentials.IAM{}})
	if cfg.AccessKey != "" {
		creds = credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, cfg.SessionToken)
	}
	lookup := minio.BucketLookupAuto
	if cfg.PathStyle {
		lookup = minio.BucketLookupPath
	}
	var err error
	if cfg.KMSKey != "" {
		if b.sse, err = encrypt.NewSSEKMS(cfg.KMSKey, nil); err != nil {
			return nil, fmt.Errorf("kms_key_id: %w", err)
		}
	}
	// No retries below: a write that is tried again by itself would meet its own first try.
	b.cl, err = minio.NewCore(cfg.Endpoint, &minio.Options{Creds: creds, Secure: secure, Region: cfg.Region,
		Transport: cfg.Transport, BucketLookup: lookup, MaxRetries: 1})
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	return b, nil
}

// Close drops idle connections.
func (b *Bucket) Close() {
	if t, ok := b.cfg.Transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Check finds out whether the service keeps to conditions: it makes an object, must not be able to make it again or
// to replace what it is not, must be able to replace what it is, and removes it.
func (b *Bucket) Check(ctx context.Context) error {
	var number [8]byte
	_, _ = rand.Read(number[:])
	key := "check/" + hex.EncodeToString(number[:])
	if err := b.Create(ctx, key, []byte("1")); err != nil {
		return err
	}
	err := b.conditions(ctx, key)
	if gone := b.Delete(ctx, key); err == nil {
		err = gone
	}
	return err
}

// conditions judges what the service does with conditions on an object that is there.
func (b *Bucket) conditions(ctx context.Context, key string) error {
	for header, refused := range map[string]error{
		"If-None-Match": b.Create(ctx, key, []byte("2")),
		"If-Match":      b.Replace(ctx, key, []byte("3"), "00000000000000000000000000000000"),
	} {
		switch errkind.Of(refused) {
		case errkind.Conflict:
		case errkind.Unavailable, errkind.Unknown, errkind.Denied:
			return refused
		default:
			return errkind.Errorf(errkind.Invalid,
				"bucket %s: the service does not keep to %s, without which two servers could write at once: %v", b.cfg.Bucket,
				header, refused)
		}
	}
	data, tag, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	if string(data) != "1" {
		return errkind.Errorf(errkind.Invalid, "bucket %s: the service refused to replace an object and did it all the same",
			b.cfg.Bucket)
	}
	if err := b.Replace(ctx, key, []byte("4"), tag); err != nil {
		return errkind.E(errkind.Of(err), "replace an object that nobody changed", err)
	}
	return nil
}

// callTime bounds one request.
const callTime = 30 * time.Second

// explain gives an error its kind. unclear is what it is when nobody knows what was done.
func explain(err error, unclear errkind.Kind) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	switch {
	case answer.StatusCode == http.StatusPreconditionFailed:
		return errkind.E(errkind.Conflict, "s3", err)
	case answer.StatusCode == http.StatusNotFound && answer.Code != "NoSuchBucket":
		return errkind.E(errkind.NotFound, "s3", err)
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized:
		return errkind.E(errkind.Denied, "s3", err)
	case answer.StatusCode == http.StatusTooManyRequests, answer.StatusCode == http.StatusConflict:
		// 409: two at once, ask again. A 503 may have been done
		return errkind.E(errkind.Unavailable, "s3", err)
	case answer.StatusCode >= 400 && answer.StatusCode < 500:
		return errkind.E(errkind.Invalid, "s3", err)
	}
	return errkind.E(unclear, "s3", err)
}

// Get returns an object, and what it is replaced by.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body, info, _, err := b.cl.GetObject(ctx, b.cfg.Bucket, b.cfg.Path+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", explain(err, errkind.Unavailable)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return data, info.ETag, explain(err, errkind.Unavailable)
}

// Create makes an object; kind Conflict where there is one.
func (b *Bucket) Create(ctx context.Context, key string, data []byte) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	return b.put(ctx, key, data, opts)
}

// Replace replaces the object that Get told of; kind Conflict where it is another one.
func (b *Bucket) Replace(ctx context.Context, key string, data []byte, tag string) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETag(tag)
	return b.put(ctx, key, data, opts)
}

func (b *Bucket) put(ctx context.Context, key string, data []byte, opts minio.PutObjectOptions) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	opts.ServerSideEncryption = b.sse
	_, err := b.cl.PutObject(ctx, b.cfg.Bucket, b.cfg.Path+key, bytes.NewReader(data), int64(len(data)), "", "", opts)
	return explain(err, errkind.Unknown)
}

// Delete removes an object; one that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := explain(b.cl.RemoveObject(ctx, b.cfg.Bucket, b.cfg.Path+key, minio.RemoveObjectOptions{}), errkind.Unknown)
	if errkind.Is(err, errkind.NotFound) {
		return nil
	}
	return err
}

// List returns up to a thousand keys that begin with a prefix and come after another, in order.
func (b *Bucket) List(ctx context.Context, prefix, after string) ([]string, error) {
	const page = 1000
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel() // also ends the listing's goroutine
	var keys []string
	for o := range b.cl.Client.ListObjects(ctx, b.cfg.Bucket, minio.ListObjectsOptions{Prefix: b.cfg.Path + prefix,
		StartAfter: b.cfg.Path + after, MaxKeys: page, Recursive: true}) {
		if o.Err != nil {
			return nil, explain(o.Err, errkind.Unavailable)
		}
		if keys = append(keys, strings.TrimPrefix(o.Key, b.cfg.Path)); len(keys) == page {
			break
		}
	}
	return keys, nil
}
