package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/loud"
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

// TestRealBrokers runs the kit against a cluster: CORBEL_KAFKA names its brokers. Its topics stay there.
func TestRealBrokers(t *testing.T) {
	brokers := os.Getenv("CORBEL_KAFKA")
	if brokers == "" {
		loud.Skip(t, "CORBEL_KAFKA names no brokers (host:port, separated by commas)")
	}
	// A cluster makes its topic of offsets, with 50 partitions, at the first commit of its life.
	conformance(t, Config{Brokers: strings.Split(brokers, ","), Partitions: logtest.Partitions, Timeout: 25 * time.Second},
		fmt.Sprintf("corbel-%d-", time.Now().UnixNano()))
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
