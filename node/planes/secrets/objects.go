package secretsplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/consulstore"
	"corbel.dev/corbel/secrets/storage/gcsstore"
	"corbel.dev/corbel/secrets/storage/objectstore"
	"corbel.dev/corbel/secrets/storage/s3store"
)

// ownBucket is a bucket with connections of its own.
type ownBucket interface {
	objectstore.Bucket
	Close()
}

// remoteObjects is a storage over a bucket, whose service is asked first whether it keeps to conditions, where it
// could do otherwise. Its lock is named by the wire's address, as others reach this server.
func remoteObjects(h *secretsHost, bucket ownBucket, ha bool) remoteStorage {
	return remoteStorage{open: func(ctx context.Context) (storage.Backend, storage.Lock, error) {
		if service, ok := bucket.(interface{ Check(context.Context) error }); ok {
			if err := service.Check(ctx); err != nil {
				return nil, nil, err
			}
		}
		store, err := objectstore.Open(ctx, objectstore.Config{Bucket: bucket, Log: h.log})
		if err != nil {
			return nil, nil, err
		}
		return &lockedBackend{store, func() error { bucket.Close(); return nil }}, store.Locker(h.address), nil
	}, ha: ha, drop: bucket.Close, look: func(ctx context.Context) (string, error) { return lookAtBucket(ctx, bucket) }}
}

// lookAtBucket lists and reads what is not there: whoever may do that may see what is.
func lookAtBucket(ctx context.Context, bucket ownBucket) (string, error) {
	const nothing = "diagnose/nothing"
	if _, err := bucket.List(ctx, nothing, ""); err != nil {
		return "", err
	}
	if _, _, err := bucket.Get(ctx, nothing); err != nil && !errkind.Is(err, errkind.NotFound) {
		return "", err
	}
	return bucket.Info().Durability, nil
}

func remoteConsul(h *secretsHost, k *vaultconf.Keys) (remoteStorage, error) {
	k.Ignore("consistency_mode", "disable_registration") // reads are consistent, and nothing is registered, in any case
	k.Warn("max_parallel", "session_ttl", "lock_wait_time", "check_timeout", "service", "service_tags", "service_address",
		"service_meta")
	cfg := consulstore.Config{
		Address: k.String("address", os.Getenv("CONSUL_HTTP_ADDR")), Scheme: k.String("scheme", ""),
		Path:  k.String("path", ""),
		Token: k.String("token", os.Getenv("CONSUL_HTTP_TOKEN")),
	}
	ha := k.Bool("ha_enabled", true)
	config, err := storageTLS(k)
	if err != nil {
		return remoteStorage{}, err
	}
	if config != nil {
		cfg.Scheme = cmp.Or(cfg.Scheme, "https")
		cfg.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, MaxIdleConnsPerHost: 4,
			IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second}
	}
	b, err := consulstore.New(cfg)
	if err != nil {
		return remoteStorage{}, err
	}
	out := remoteObjects(h, b, ha)
	out.at = []string{cmp.Or(strings.TrimPrefix(strings.TrimPrefix(cfg.Address, "http://"), "https://"), "127.0.0.1:8500")}
	return out, nil
}

// storageTLS reads the tls_ keys of a storage; nil where there are none.
func storageTLS(k *vaultconf.Keys) (*tls.Config, error) {
	k.Ignore("tls_min_version") // 1.2 is the least in any case
	c, err := k.ClientTLS()
	if err != nil || c.RootCAs == nil && len(c.Certificates) == 0 && !c.InsecureSkipVerify {
		return nil, err
	}
	return c, nil
}

func remoteS3(h *secretsHost, k *vaultconf.Keys) (remoteStorage, error) {
	k.Warn("max_parallel")
	cfg := s3store.Config{
		Bucket: k.String("bucket", os.Getenv("AWS_S3_BUCKET")), Endpoint: k.String("endpoint", os.Getenv("AWS_S3_ENDPOINT")),
		Region:    k.String("region", os.Getenv("AWS_REGION")),
		AccessKey: k.String("access_key", ""), SecretKey: k.String("secret_key", ""),
		SessionToken: k.String("session_token", ""), Path: k.String("path", ""),
		PathStyle: k.Bool("s3_force_path_style", false), Plain: k.Bool("disable_ssl", false),
		KMSKey: k.String("kms_key_id", ""),
	}
	ha := k.Bool("ha_enabled", false)
	b, err := s3store.New(cfg)
	if err != nil {
		return remoteStorage{}, err
	}
	return remoteObjects(h, b, ha), nil
}

func remoteGCS(h *secretsHost, k *vaultconf.Keys) (remoteStorage, error) {
	k.Warn("max_parallel", "chunk_size")
	cfg := gcsstore.Config{Bucket: k.String("bucket", os.Getenv("GOOGLE_STORAGE_BUCKET")),
		Endpoint: os.Getenv("STORAGE_EMULATOR_HOST")}
	share := false
	if text := os.Getenv("GOOGLE_STORAGE_HA_ENABLED"); text != "" {
		var err error
		if share, err = strconv.ParseBool(text); err != nil {
			return remoteStorage{}, fmt.Errorf("GOOGLE_STORAGE_HA_ENABLED: %q must be true or false", text)
		}
	}
	ha := k.Bool("ha_enabled", share)
	if cfg.Endpoint == "" {
		tokens, err := googleTokens(h)
		if err != nil {
			return remoteStorage{}, err
		}
		cfg.Tokens = tokens
	}
	b, err := gcsstore.New(cfg)
	if err != nil {
		return remoteStorage{}, err
	}
	return remoteObjects(h, b, ha), nil
}

// googleTokens gets them for the account that the environment names, or for the machine's.
func googleTokens(h *secretsHost) (*gcsstore.Tokens, error) {
	path := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS")
	if path == "" {
		return gcsstore.Instance(os.Getenv("GCE_METADATA_HOST"), h.clock), nil
	}
	file, err := vfs.ReadFile(vfs.OS{}, path)
	if err != nil {
		return nil, fmt.Errorf("GOOGLE_APPLICATION_CREDENTIALS: %w", err)
	}
	tokens, err := gcsstore.ServiceAccount(file, gcsstore.StorageScope, h.clock)
	if err != nil {
		return nil, fmt.Errorf("GOOGLE_APPLICATION_CREDENTIALS: %s: %w", path, err)
	}
	return tokens, nil
}
