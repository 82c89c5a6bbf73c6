package lab

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/fault"
)

// The numbers of the incident in which secrets lay in the service catalog: enough leases and tokens to be a load of
// their own.
const (
	stormLeases = 2500
	herdTokens  = 48
	massLogins  = 1200
)

// secretsOnConsul starts a catalog of three and a server whose secrets lie in it.
func secretsOnConsul(ctx context.Context, b *environment) (err error) {
	if b.others, err = b.cluster(ctx, "catalog", 3); err != nil {
		return err
	}
	at, err := leaderOf(ctx, b.others)
	if err != nil {
		return err
	}
	return b.withSecrets(ctx, `storage "consul" { address = "`+at.HTTP+`" }`)
}

// secretsWithStorm are those with leases that wait for the end of a maintenance.
func secretsWithStorm(ctx context.Context, b *environment) error {
	if err := secretsOnConsul(ctx, b); err != nil {
		return err
	}
	b.say("%d leases that are to be revoked later", stormLeases)
	return b.certificates(ctx, stormLeases)
}

// blockStorageSink blocks the sink of the storage's leader, lets a mass revocation begin and a herd of tokens be
// renewed.
func blockStorageSink(ctx context.Context, b *environment) (expected, error) {
	leader, err := leaderOf(ctx, b.others)
	if err != nil {
		return expected{}, err
	}
	herd, err := b.tokens(ctx, herdTokens)
	if err != nil {
		return expected{}, err
	}
	if err := b.blockSinkOf(ctx, leader, "dogstatsd", 256); err != nil {
		return expected{}, err
	}
	if err := b.storm(ctx, "pki"); err != nil {
		return expected{}, err
	}
	b.add(b.load.ctx, renewing(herd))
	return expected{first: sinkOf("dogstatsd"), denies: []string{"the disk is fine", cpuFine,
		"not the cause, but slowed by it: secrets-1"}}, nil
}

// stalledAndBlocked is a leader whose syncs take longer than a second each, and whose sink blocks.
func stalledAndBlocked(ctx context.Context, b *environment) (w expected, err error) {
	if b.faulty, err = b.leader(ctx); err != nil {
		return w, err
	}
	if err := b.blockSinkOf(ctx, b.faulty, "dogstatsd", 64); err != nil {
		return w, err
	}
	return expected{first: stalled(b.faulty), also: []finding{sinkOf("dogstatsd")}},
		b.faulty.Control.Disk(ctx, fault.Command{Name: "stall", Ops: "sync", Delay: 1500 * time.Millisecond})
}

func stalled(s *server) finding { return finding{"disk-stalled", "disk of " + s.Name} }

func sinkOf(name string) finding { return finding{"metrics-sink-blocks", "metrics sink " + name} }

// mendDisk leaves the sink.
func mendDisk(ctx context.Context, b *environment) (expected, error) {
	return expected{first: sinkOf("dogstatsd")}, b.faulty.Control.Lift(ctx, "stall")
}

// mendSink leaves the disk.
func mendSink(ctx context.Context, b *environment) (expected, error) {
	return expected{first: stalled(b.faulty)}, b.faulty.Control.Lift(ctx, "dogstatsd")
}

// loseQuorum kills two of the three servers that secrets lie in, and asks the secrets' own cluster alone, as its
// operators do at first.
func loseQuorum(ctx context.Context, b *environment) (expected, error) {
	at, err := leaderOf(ctx, b.others)
	if err != nil {
		return expected{}, err
	}
	for _, s := range b.others {
		if s != at {
			s.Kill()
		}
	}
	b.asked.alone = true
	return expected{first: finding{"storage-slow", "consul storage of secrets"}}, nil
}

// askStorage asks both clusters together.
func askStorage(_ context.Context, b *environment) (expected, error) {
	b.asked.alone = false
	return expected{first: finding{"member-silent", "catalog-"}, also: []finding{{"no-leader", "group catalog"}}}, nil
}

// secretsOfDatabase starts a server with secrets in files, and roles of a database that is being maintained.
func secretsOfDatabase(ctx context.Context, b *environment) error {
	url, err := b.postgres(ctx)
	if err != nil {
		return err
	}
	if err := secretsOnFile(ctx, b); err != nil {
		return err
	}
	b.say("%d roles of a database that are to be revoked later", massLogins)
	return b.logins(ctx, massLogins, url)
}

// resumeRevocation ends the maintenance while the database does not answer.
func resumeRevocation(ctx context.Context, b *environment) (string, error) {
	b.endOutside()
	return "revocation of leases", b.storm(ctx, "database")
}

// secretsOnFile starts a server whose secrets lie in files of its own.
func secretsOnFile(ctx context.Context, b *environment) error {
	return b.withSecrets(ctx, `storage "file" { path = "secrets" }`)
}
