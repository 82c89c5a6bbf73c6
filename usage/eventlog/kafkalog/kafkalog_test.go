package kafkalog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/test/kafka"
	"corbel.dev/corbel/usage/eventlog"
	"corbel.dev/corbel/usage/eventlog/logtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// cluster starts three brokers in this process.
func cluster(t *testing.T) (*kfake.Cluster, Config) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, Config{Brokers: c.ListenAddrs(), Partitions: logtest.Partitions, Timeout: 10 * time.Second}
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func conformance(t *testing.T, cfg Config, prefix string) {
	logtest.Run(t, logtest.Engine{TrimsAtOnce: true, Open: func(t *testing.T, name string) eventlog.Log {
		cfg := cfg
		cfg.Topic = prefix + strings.NewReplacer("/", ".", " ", "-", "_", "-").Replace(name)
		return open(t, cfg)
	}})
}

func TestConformance(t *testing.T) {
	_, cfg := cluster(t)
	conformance(t, cfg, "")
}

// TestRealBrokers runs the kit against three brokers of Kafka, or those that CORBEL_KAFKA names, where the topics stay;
// and then kills them one by one, while four senders append.
func TestRealBrokers(t *testing.T) {
	var brokers []string
	var own *kafka.Cluster
	if names := os.Getenv("CORBEL_KAFKA"); names != "" {
		brokers = strings.Split(names, ",")
	} else {
		var err error
		if own, err = kafka.Open(t.Context(), t.TempDir(), 3); errors.Is(err, kafka.ErrMissing) {
			loud.Skip(t, "%v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		brokers = own.Brokers
	}
	cfg := Config{Brokers: brokers, Partitions: logtest.Partitions, Timeout: 25 * time.Second}
	t.Run("Conformance", func(t *testing.T) {
		// A cluster makes its topic of offsets at the first commit of its life.
		conformance(t, cfg, fmt.Sprintf("corbel-%d-", time.Now().UnixNano()))
	})
	t.Run("Killed", func(t *testing.T) {
		if own == nil {
			loud.Skip(t, "brokers that CORBEL_KAFKA names are not killed")
		}
		killed(t, own, cfg)
	})
}

var brokerKills = flag.Int("broker-kills", 1, "how many of Kafka's brokers are killed, one after the other")

// killed kills one broker after the other. What was acknowledged is there, in its order; what was refused with an error
// that may have stored it is there once or not at all.
func killed(t *testing.T, brokers *kafka.Cluster, cfg Config) {
	cfg.Topic, cfg.Timeout = "killed", 10*time.Second
	l := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*brokerKills)*3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var acknowledged [logtest.Partitions][]string
	var count atomic.Int64
	stop := make(chan struct{})
	for p := range acknowledged {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("%d-%d", p, n)
				if _, err := l.Append(ctx, entry(p, text)); err == nil {
					acknowledged[p] = append(acknowledged[p], text)
					count.Add(1)
				} else if ctx.Err() != nil {
					return
				}
			}
		})
	}
	goesOn := func() {
		before := count.Load()
		polltest.Within(t, 2*time.Minute, func() bool { return count.Load() > before+100 }, "entries to be taken again")
	}
	goesOn()
	for n := range *brokerKills {
		i := n % len(brokers.Brokers)
		brokers.Kill(i)
		goesOn()
		if err := errors.Join(brokers.Start(i), brokers.Wait(ctx, i)); err != nil {
			t.Fatal(err)
		}
		polltest.Within(t, 2*time.Minute, func() bool { return inSync(t, l) }, "broker %d to have what it missed", i+1)
	}
	close(stop)
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the senders took longer than the test's time")
	}
	judgeKilled(t, l, acknowledged)
}

// inSync reports whether each partition is kept by all its replicas.
func inSync(t *testing.T, l *Log) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), l.cfg.Timeout)
	defer cancel()
	topics, err := l.admin.ListTopics(ctx, l.cfg.Topic)
	if err != nil {
		return false
	}
	for _, p := range topics[l.cfg.Topic].Partitions {
		if p.Err != nil || len(p.ISR) < len(p.Replicas) {
			return false
		}
	}
	return len(topics[l.cfg.Topic].Partitions) == logtest.Partitions
}

func judgeKilled(t *testing.T, l *Log, acknowledged [logtest.Partitions][]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	total := 0
	for p, want := range acknowledged {
		r, err := l.Reader(map[int]uint64{p: 0})
		if err != nil {
			t.Fatal(err)
		}
		seen, next := map[string]bool{}, 0
		for next < len(want) {
			records, err := r.Next(ctx)
			if err != nil {
				t.Fatalf("partition %d: %d of %d acknowledged entries, then: %v", p, next, len(want), err)
			}
			for _, record := range records {
				text := string(record.Data)
				if seen[text] {
					t.Errorf("partition %d has %s twice", p, text)
				}
				seen[text] = true
				if next < len(want) && text == want[next] {
					next++
				}
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		total += len(want)
	}
	t.Logf("%d entries were acknowledged over %d kills, none is missing or twice", total, *brokerKills)
}

func entry(partition int, text string) []eventlog.Entry {
	return []eventlog.Entry{{Partition: partition, Data: []byte(text)}}
}

// A coordinator of groups that is not there yet is waited for.
func TestCoordinatorThatIsNotThereYet(t *testing.T) {
	c, cfg := cluster(t)
	l := open(t, cfg)
	if _, err := l.Append(t.Context(), entry(0, "x")); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	for _, key := range []kmsg.Key{kmsg.OffsetCommit, kmsg.OffsetFetch} {
		c.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if asked.Add(1)%3 != 0 {
				return notYet(req), nil, true
			}
			return nil, nil, false
		})
	}
	if err := l.Commit(t.Context(), "g", []eventlog.Position{{Partition: 0, Offset: 1}}); err != nil {
		t.Fatal(err)
	}
	got, err := l.Committed(t.Context(), "g")
	if err != nil || len(got) != 1 || got[0].Offset != 1 || asked.Load() < 4 {
		t.Fatal(got, err, asked.Load())
	}
}

// notYet is the answer of a broker that knows no coordinator.
func notYet(req kmsg.Request) kmsg.Response {
	code := kerr.CoordinatorNotAvailable.Code
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		res := r.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range r.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res
	case *kmsg.OffsetFetchRequest:
		res := r.ResponseKind().(*kmsg.OffsetFetchResponse)
		res.ErrorCode = code
		for _, group := range r.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = group.Group, code
			res.Groups = append(res.Groups, rg)
		}
		return res
	}
	return nil
}

// A broker that leads a partition and has not heard of it yet is asked again.
func TestTopicThatIsNotEverywhereYet(t *testing.T) {
	c, cfg := cluster(t)
	l := open(t, cfg)
	var asked atomic.Int64
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Add(1) > 5 {
			return nil, nil, false
		}
		r := req.(*kmsg.ListOffsetsRequest)
		res := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range r.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, true
	})
	if bounds, err := l.Bounds(t.Context()); err != nil || len(bounds) != logtest.Partitions || asked.Load() < 6 {
		t.Fatal(bounds, err, asked.Load())
	}
}

// Brokers that cut the connection instead of answering: the batch is sent again, and all are there, once and in order.
func TestConnectionsThatAreLost(t *testing.T) {
	c, cfg := cluster(t)
	l := open(t, cfg)
	var lost atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if lost.Add(1)%3 == 0 {
			return nil, errors.New("the connection is lost"), true
		}
		return nil, nil, false
	})
	const n = 30
	for i := range n {
		if _, err := l.Append(t.Context(), entry(i%2, fmt.Sprint(i))); err != nil {
			t.Fatal(i, err)
		}
	}
	if lost.Load() < n+5 {
		t.Fatalf("%d requests: none was lost", lost.Load())
	}
	bounds, err := l.Bounds(t.Context())
	if err != nil || bounds[0].Next != n/2 || bounds[1].Next != n/2 {
		t.Fatal(bounds, err)
	}
}

// A refusal for good says that nothing is stored; brokers that do not answer say nothing, and the caller does not wait.
func TestKindsOfErrors(t *testing.T) {
	c, cfg := cluster(t)
	l := open(t, cfg)
	refuse := func(code int16) {
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			p := req.(*kmsg.ProduceRequest)
			res := p.ResponseKind().(*kmsg.ProduceResponse)
			for _, topic := range p.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
				for _, part := range topic.Partitions {
					rp := kmsg.NewProduceResponseTopicPartition()
					rp.Partition, rp.ErrorCode = part.Partition, code
					rt.Partitions = append(rt.Partitions, rp)
				}
				res.Topics = append(res.Topics, rt)
			}
			return res, nil, true
		})
	}
	refuse(kerr.TopicAuthorizationFailed.Code)
	if _, err := l.Append(t.Context(), entry(0, "x")); errkind.Of(err) != errkind.Denied {
		t.Fatal(err)
	}
	held := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		<-held
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, entry(0, "x")); errkind.Of(err) != errkind.Unknown || !errors.Is(err, ctx.Err()) {
		t.Fatal(err)
	}
	close(held)
}

func TestPendingIsBounded(t *testing.T) {
	c, cfg := cluster(t)
	cfg.PendingBytes = 1000
	l := open(t, cfg)
	held := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		<-held
		return nil, nil, false
	})
	first := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := l.Append(ctx, entry(0, strings.Repeat("x", 700)))
	first <- err
	if _, err := l.Append(t.Context(), entry(0, strings.Repeat("x", 700))); errkind.Of(err) != errkind.Overloaded {
		t.Fatal(err)
	}
	close(held)
	if err := <-first; errkind.Of(err) != errkind.Unknown {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, cfg := cluster(t)
	open(t, cfg)
	other := cfg
	other.Partitions = 7
	if _, err := Open(t.Context(), other); errkind.Of(err) != errkind.Invalid {
		t.Fatal("another number of partitions:", err)
	}
	if _, err := Open(t.Context(), Config{}); errkind.Of(err) != errkind.Invalid {
		t.Fatal("no broker:", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Open(ctx, Config{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second})
	if errkind.Of(err) != errkind.Unavailable {
		t.Fatal("nobody listens:", err)
	}
}

// TestLogin: brokers that want a user are given one, by each mechanism, and a wrong password is told as Denied without
// being shown.
func TestLogin(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "pass1"),
		kfake.Superuser("SCRAM-SHA-256", "v", "pass2"), kfake.Superuser("SCRAM-SHA-512", "w", "pass3"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, as := range []Config{{User: "u", Password: "pass1"}, {SASL: "scram-sha-256", User: "v", Password: "pass2"},
		{SASL: "scram-sha-512", User: "w", Password: "pass3"}} {
		as.Brokers, as.Partitions, as.Timeout = c.ListenAddrs(), 1, 10*time.Second
		if _, err := open(t, as).Append(t.Context(), entry(0, "x")); err != nil {
			t.Error(as.SASL, err)
		}
		as.Password, as.Timeout = "s3cret", 2*time.Second
		if l, err := Open(t.Context(), as); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: a wrong password: %v %v", as.SASL, l, err)
		}
	}
}
