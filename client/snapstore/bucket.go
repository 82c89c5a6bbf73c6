package snapstore

import (
	"context"
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
)

// The endpoints when none is named.
const (
	amazonEndpoint = "https://s3.amazonaws.com"
	googleEndpoint = "https://storage.googleapis.com"
)

// BucketConfig says where a bucket is and how to write to it.
type BucketConfig struct {
	// Endpoint is host:port or a URL; without a scheme it is https. Default Amazon's.
	Endpoint string
	// Region of the bucket; empty asks for it.
	Region string
	Bucket string
	// Prefix is a folder in the bucket: names are put behind it and a slash.
	Prefix string
	// AccessKey and SecretKey sign the requests. Without them they come from
	// AWS_ACCESS_KEY_ID and so on, the shared credentials file, or the instance's role.
	AccessKey, SecretKey string
	// Encrypt asks for encryption at rest: "" (the bucket's default), AES256 or aws:kms.
	Encrypt string
	// KMSKey is the key of aws:kms; default the account's.
	KMSKey string
	// StaticName keeps every archive under this one name, for buckets with versions. Nothing is pruned then.
	StaticName string
	// Transport replaces the network in tests.
	Transport http.RoundTripper
}

// Bucket keeps archives as objects over the S3 protocol.
type Bucket struct {
	cfg BucketConfig
	sse encrypt.ServerSide
	cl  *minio.Client
}

// NewGoogle makes a target of a bucket of Google Cloud Storage, which takes the S3
// protocol with HMAC keys of a service account.
func NewGoogle(cfg BucketConfig) (*Bucket, error) {
	if cfg.AccessKey == "" || cfg.SecretKey == "" {
		return nil, errors.New("google storage needs an HMAC key of a service account: set -google-access-key-id and " +
			"-google-secret-access-key, or GOOGLE_ACCESS_KEY_ID and GOOGLE_SECRET_ACCESS_KEY")
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = googleEndpoint
	}
	if cfg.Region == "" {
		cfg.Region = "auto" // part of the signature alone: the bucket's name says where it is
	}
	return NewBucket(cfg)
}

// NewBucket makes a target of a bucket. It does no network.
func NewBucket(cfg BucketConfig) (*Bucket, error) {
	host, secure, err := endpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if (cfg.AccessKey == "") != (cfg.SecretKey == "") {
		return nil, errors.New("an access key needs both its id and its secret")
	}
	b := &Bucket{cfg: cfg}
	b.cfg.Prefix = strings.Trim(cfg.Prefix, "/")
	if b.sse, err = encryption(cfg); err != nil {
		return nil, err
	}
	if b.cfg.Transport == nil {
		b.cfg.Transport = transport()
	}
	creds := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{}, &credentials.IAM{}})
	if cfg.AccessKey != "" {
		creds = credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, "")
	}
	// Few retries: the caller backs off and tries again itself.
	b.cl, err = minio.New(host, &minio.Options{Creds: creds, Secure: secure, Region: cfg.Region,
		Transport: b.cfg.Transport, MaxRetries: 3})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
	}
	return b, nil
}

func endpoint(text string) (host string, secure bool, err error) {
	if text == "" {
		text = amazonEndpoint
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return "", false, fmt.Errorf("endpoint %q must be host:port, http://host or https://host", text)
	}
	return u.Host, u.Scheme == "https", nil
}

func encryption(cfg BucketConfig) (encrypt.ServerSide, error) {
	switch {
	case cfg.Encrypt == "" && cfg.KMSKey != "":
		return nil, errors.New("a KMS key is used with encryption aws:kms only")
	case cfg.Encrypt == "":
		return nil, nil
	case cfg.Encrypt == "AES256":
		return encrypt.NewSSE(), nil
	case cfg.Encrypt == "aws:kms":
		return encrypt.NewSSEKMS(cfg.KMSKey, nil)
	}
	return nil, fmt.Errorf("encryption %q must be AES256 or aws:kms", cfg.Encrypt)
}

// transport bounds each step of a request; the whole is bounded by the caller's context.
func transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute, ExpectContinueTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
		DisableCompression: true}
}

// String implements Target.
func (b *Bucket) String() string {
	return "bucket " + b.cfg.Bucket + " at " + b.cl.EndpointURL().Host
}

// Close drops idle connections.
func (b *Bucket) Close() {
	if t, ok := b.cfg.Transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func (b *Bucket) key(name string) string {
	if b.cfg.Prefix == "" {
		return name
	}
	return b.cfg.Prefix + "/" + name
}

// Put implements Target. The service compares MD5 sums, and shows an object only when it is whole.
func (b *Bucket) Put(ctx context.Context, name string, archive io.ReadSeeker, size int64) error {
	if b.cfg.StaticName != "" {
		name = b.cfg.StaticName
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := b.cl.PutObject(ctx, b.cfg.Bucket, b.key(name), archive, size,
		minio.PutObjectOptions{ContentType: "application/gzip", SendContentMd5: true, ServerSideEncryption: b.sse})
	return err
}

// List implements Target. Objects in folders below the prefix are left out.
func (b *Bucket) List(ctx context.Context) ([]string, error) {
	if b.cfg.StaticName != "" {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the library's goroutine when a page fails
	folder := b.key("")
	var names []string
	for o := range b.cl.ListObjects(ctx, b.cfg.Bucket, minio.ListObjectsOptions{Prefix: folder}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if name := strings.TrimPrefix(o.Key, folder); name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// Delete implements Target.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	return b.cl.RemoveObject(ctx, b.cfg.Bucket, b.key(name), minio.RemoveObjectOptions{})
}
