package cloudseal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"corbel.dev/corbel/kit/errkind"
)

// AWSConfig says which key of AWS KMS seals. What is empty comes from where AWS' own tools take it: variables, the
// shared files, a web identity, the container's or the machine's role.
type AWSConfig struct {
	KeyID                              string // id, ARN, or alias
	Region, Endpoint                   string
	AccessKey, SecretKey, SessionToken string
	SharedFile, SharedProfile          string
	Log                                *slog.Logger
	HTTP                               *http.Client // nil: one of its own
}

// awsKMS is AWS KMS' JSON protocol, version 1.1 (service TrentService).
type awsKMS struct {
	cfg    AWSConfig
	caller caller

	mu  sync.Mutex // guards the next
	aws *aws.Config
}

// NewAWS checks the configuration; it asks nobody.
func NewAWS(cfg AWSConfig) (*Seal, error) {
	switch {
	case cfg.KeyID == "":
		return nil, errors.New("kms_key_id: is missing; the variable VAULT_AWSKMS_SEAL_KEY_ID says it too")
	case (cfg.AccessKey == "") != (cfg.SecretKey == ""):
		return nil, errors.New("access_key, secret_key: one needs the other")
	case cfg.SessionToken != "" && cfg.AccessKey == "":
		return nil, errors.New("session_token: needs access_key and secret_key")
	}
	if cfg.Endpoint != "" {
		if !strings.Contains(cfg.Endpoint, "://") {
			cfg.Endpoint = "https://" + cfg.Endpoint
		}
		if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("endpoint: %q must be a URL such as https://kms.eu-west-1.amazonaws.com", cfg.Endpoint)
		}
	}
	k := &awsKMS{cfg: cfg}
	k.caller = newCaller(cfg.HTTP, explainAWS)
	return newSeal("awskms", k, cfg.Log), nil
}

// ready has the credentials' source, and the region.
func (k *awsKMS) ready(ctx context.Context) (*aws.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.aws != nil {
		return k.aws, nil
	}
	var with []func(*config.LoadOptions) error
	c := &k.cfg
	if c.Region != "" {
		with = append(with, config.WithRegion(c.Region))
	}
	if c.AccessKey != "" {
		with = append(with, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)))
	}
	if c.SharedFile != "" {
		with = append(with, config.WithSharedCredentialsFiles([]string{c.SharedFile}))
	}
	if c.SharedProfile != "" {
		with = append(with, config.WithSharedConfigProfile(c.SharedProfile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "credentials", err)
	}
	if cfg.Region == "" {
		out, err := imds.NewFromConfig(cfg).GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return nil, errkind.Errorf(errkind.Unavailable,
				"region: it is not set, and the machine's metadata do not tell it: set region or AWS_REGION: %w", err)
		}
		cfg.Region = out.Region
	}
	k.aws = &cfg
	return k.aws, nil
}

func (k *awsKMS) do(ctx context.Context, action string, in, out any) error {
	cfg, err := k.ready(ctx)
	if err != nil {
		return err
	}
	at := k.cfg.Endpoint
	if at == "" {
		at = "https://kms." + cfg.Region + ".amazonaws.com"
		if strings.HasPrefix(cfg.Region, "cn-") {
			at += ".cn"
		}
	}
	return k.caller.call(ctx, func(ctx context.Context) (*http.Request, error) {
		req, body, err := post(ctx, strings.TrimSuffix(at, "/")+"/", in)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/x-amz-json-1.1")
		req.Header.Set("X-Amz-Target", "TrentService."+action)
		who, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return nil, errkind.Errorf(errkind.Unavailable,
				"no credentials: set access_key and secret_key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
					"or give the machine a role: %w", err)
		}
		sum := sha256.Sum256(body)
		err = signer.NewSigner().SignHTTP(ctx, who, req, hex.EncodeToString(sum[:]), "kms", cfg.Region, time.Now())
		return req, err
	}, out)
}

func (k *awsKMS) encrypt(ctx context.Context, plain []byte) (string, []byte, error) {
	var out struct {
		KeyID string `json:"KeyId"`
		Blob  []byte `json:"CiphertextBlob"`
	}
	err := k.do(ctx, "Encrypt", map[string]any{"KeyId": k.cfg.KeyID, "Plaintext": plain}, &out)
	if err == nil && (out.KeyID == "" || len(out.Blob) == 0) {
		err = errkind.New(errkind.Unavailable, "the answer has no KeyId or no CiphertextBlob")
	}
	return out.KeyID, out.Blob, err
}

func (k *awsKMS) decrypt(ctx context.Context, key string, blob []byte) ([]byte, error) {
	var out struct {
		KeyID string `json:"KeyId"`
		Plain []byte `json:"Plaintext"`
	}
	err := k.do(ctx, "Decrypt", map[string]any{"KeyId": key, "CiphertextBlob": blob}, &out)
	if err == nil && len(out.Plain) == 0 {
		err = errkind.New(errkind.Unavailable, "the answer has no Plaintext")
	}
	return out.Plain, err
}

func (k *awsKMS) newest(ctx context.Context) (string, error) {
	var out struct {
		Metadata struct {
			ARN string `json:"Arn"`
		} `json:"KeyMetadata"`
	}
	err := k.do(ctx, "DescribeKey", map[string]any{"KeyId": k.cfg.KeyID}, &out)
	if err == nil && out.Metadata.ARN == "" {
		err = errkind.New(errkind.Unavailable, "the answer has no KeyMetadata.Arn")
	}
	return out.Metadata.ARN, err
}

// awsAdvice is what to do about an error, by its name.
var awsAdvice = map[string]string{
	"AccessDeniedException":        "allow kms:Encrypt, kms:Decrypt and kms:DescribeKey to this server",
	"NotFoundException":            "look at kms_key_id and region",
	"DisabledException":            "enable the key in KMS",
	"KMSInvalidStateException":     "the key is being deleted or is not ready: cancel the deletion in KMS",
	"IncorrectKeyException":        "the root key is sealed with another key: give kms_key_id as it was",
	"InvalidCiphertextException":   "the root key is sealed with another key, or its record is damaged",
	"InvalidKeyUsageException":     "kms_key_id must be a symmetric key for ENCRYPT_DECRYPT",
	"InvalidSignatureException":    "look at secret_key, region and this machine's clock",
	"SignatureDoesNotMatch":        "look at secret_key, region and this machine's clock",
	"UnrecognizedClientException":  "look at access_key and session_token",
	"InvalidClientTokenId":         "look at access_key and session_token",
	"ExpiredTokenException":        "session_token has ended: give a new one, or let the machine have a role",
	"IncompleteSignatureException": "look at access_key",
	"KMSInternalException":         "KMS has a fault of its own",
	"ThrottlingException":          "KMS has too many requests of this account: raise its quota",
	"LimitExceededException":       "KMS has too many requests of this account: raise its quota",
	"DependencyTimeoutException":   "KMS has a fault of its own",
	"KeyUnavailableException":      "KMS has a fault of its own",
	"RequestExpired":               "look at this machine's clock",
}

// explainAWS reads an error; KMS throttles with 400.
func explainAWS(_ int, body []byte) *refusal {
	var in struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Text    string `json:"Message"`
	}
	_ = json.Unmarshal(body, &in)
	code := in.Type[strings.LastIndex(in.Type, "#")+1:]
	r := &refusal{code: code, message: cmp.Or(in.Message, in.Text), advice: awsAdvice[code]}
	switch code {
	case "ThrottlingException", "LimitExceededException", "KMSInternalException", "DependencyTimeoutException",
		"KeyUnavailableException", "RequestLimitExceeded":
		r.again = true
	}
	return r
}
