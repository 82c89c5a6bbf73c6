package snapshots

import (
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/snapstore"
	"github.com/spf13/cobra"
)

// agentOptions are the flags of agent.
type agentOptions struct {
	interval    time.Duration
	retain      int
	lockKey     string
	maxFailures int
	namePrefix  string
	scratch     string
	localPath   string
	aws, google snapstore.BucketConfig
	kms         bool
	unused      string
}

func (o *agentOptions) flags(e *command.Env, c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Hour, "how often to take one; 0 takes one and ends")
	f.IntVar(&o.retain, "retain", 30, "how many to keep")
	f.StringVar(&o.lockKey, "lock-key", "consul-snapshot/lock",
		"key that the acting agent has locked; the same for all agents")
	f.IntVar(&o.maxFailures, "max-failures", 3, "consecutive failures after which another agent may try")
	f.StringVar(&o.namePrefix, "name-prefix", "consul", "prefix of snapshot names")
	f.StringVar(&o.scratch, "local-scratch-path", "", "folder for a snapshot until it is checked; default the system's")
	f.StringVar(&o.localPath, "local-path", "",
		"folder to keep snapshots in; default the current one when there is no bucket")
	f.StringVar(&o.aws.AccessKey, "aws-access-key-id", "",
		"default the environment, the shared file or the instance's role")
	f.StringVar(&o.aws.SecretKey, "aws-secret-access-key", "", "secret of that key")
	f.StringVar(&o.aws.Bucket, "aws-s3-bucket", "", "bucket to keep snapshots in")
	f.StringVar(&o.aws.Region, "aws-s3-region", "", "its region")
	f.StringVar(&o.aws.Prefix, "aws-s3-key-prefix", "consul-snapshot", "folder in the bucket")
	f.StringVar(&o.aws.Endpoint, "aws-s3-endpoint", "", "host or URL of an S3-compatible service; default Amazon's")
	f.StringVar(&o.aws.StaticName, "aws-s3-static-snapshot-name", "",
		"keep every snapshot under this name, and delete none: for buckets with versions")
	var encrypt bool
	f.BoolVar(&encrypt, "aws-s3-server-side-encryption", false, "have S3 encrypt with a key of its own")
	f.BoolVar(&o.kms, "aws-s3-enable-kms", false, "have S3 encrypt with KMS")
	f.StringVar(&o.aws.KMSKey, "aws-s3-kms-key", "", "key of KMS; default the account's")
	f.StringVar(&o.google.Bucket, "google-bucket", "", "bucket of Google Cloud Storage")
	f.StringVar(&o.google.Prefix, "google-key-prefix", "consul-snapshot", "folder in it")
	f.StringVar(&o.google.AccessKey, "google-access-key-id", "", "HMAC key of a service account (GOOGLE_ACCESS_KEY_ID)")
	f.StringVar(&o.google.SecretKey, "google-secret-access-key", "", "its secret (GOOGLE_SECRET_ACCESS_KEY)")
	f.StringVar(&o.google.Endpoint, "google-endpoint", "", "host or URL; default storage.googleapis.com")
	for _, name := range []string{"service", "deregister-after"} {
		f.StringVar(&o.unused, name, "", "no effect: the agent registers no service")
		_ = f.MarkHidden(name) // fails for an unknown flag only
	}
}

// complete checks the flags and fills in what depends on others.
func (o *agentOptions) complete(e *command.Env, c *cobra.Command) error {
	encrypt, err := c.Flags().GetBool("aws-s3-server-side-encryption")
	switch {
	case err != nil:
		return err
	case o.interval < 0:
		return command.Usagef("-interval %s must not be negative", o.interval)
	case o.retain < 1:
		return command.Usagef("-retain %d must be at least 1", o.retain)
	case o.maxFailures < 1:
		return command.Usagef("-max-failures %d must be at least 1", o.maxFailures)
	case o.namePrefix == "" || strings.ContainsAny(o.namePrefix, `/\`):
		return command.Usagef("-name-prefix %q must be a name without slashes", o.namePrefix)
	case strings.Trim(o.lockKey, "/") == "":
		return command.Usagef("-lock-key must not be empty")
	case o.kms:
		o.aws.Encrypt = "aws:kms"
	case encrypt:
		o.aws.Encrypt = "AES256"
	}
	o.lockKey = strings.Trim(o.lockKey, "/")
	if o.google.AccessKey == "" {
		o.google.AccessKey = e.Getenv("GOOGLE_ACCESS_KEY_ID")
	}
	if o.google.SecretKey == "" {
		o.google.SecretKey = e.Getenv("GOOGLE_SECRET_ACCESS_KEY")
	}
	return nil
}

// targets makes the places that the flags name, or else the current folder.
func (o *agentOptions) targets(e *command.Env) ([]snapstore.Target, error) {
	var out []snapstore.Target
	if o.aws.Bucket != "" {
		b, err := snapstore.NewBucket(o.aws)
		if err != nil {
			return nil, err
		}
		e.OnClose(b.Close)
		out = append(out, b)
	}
	if o.google.Bucket != "" {
		b, err := snapstore.NewGoogle(o.google)
		if err != nil {
			return nil, err
		}
		e.OnClose(b.Close)
		out = append(out, b)
	}
	if o.localPath == "" && len(out) == 0 {
		o.localPath = "."
	}
	if o.localPath != "" {
		d, err := snapstore.NewFolder(o.localPath)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}
