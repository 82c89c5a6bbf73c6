// Package kafka starts real Kafka brokers for tests, kills them and starts them again. It needs java, and mvn for
// Kafka's files, which are kept in .cache; ErrMissing says what is not there.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/test/fetch"
)

// ErrMissing is in the error of Open where this machine cannot run Kafka.
var ErrMissing = errors.New("Kafka cannot run here")

// version of Kafka: the last line of releases that runs on Java 11.
const version = "3.9.1"

// project names Kafka's server and a writer of its log to Maven, which checks what it fetches.
const project = `<project><modelVersion>4.0.0</modelVersion>
<groupId>dev.corbel</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
<dependency>
	<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
	<version>` + version + `</version>
</dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
`

const logging = `log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
`

// startLimit is how long a broker may take until it answers.
const startLimit = 2 * time.Minute

// Cluster is brokers of one cluster, each with a share in its metadata. Not safe for concurrent use.
type Cluster struct {
	// Brokers are the addresses, as host:port.
	Brokers []string

	classes   string
	dirs      []string
	processes []*spawn.Process
}

// Open starts so many brokers, which keep what they have below dir, and waits for them.
func Open(ctx context.Context, dir string, brokers int) (*Cluster, error) {
	classes, err := classes(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	c := &Cluster{classes: classes, processes: make([]*spawn.Process, brokers)}
	ports, err := testport.Free(2 * brokers)
	if err != nil {
		return nil, err
	}
	var voters []string
	for i := range brokers {
		c.Brokers = append(c.Brokers, local(ports[i]))
		c.dirs = append(c.dirs, filepath.Join(dir, strconv.Itoa(i+1)))
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, local(ports[brokers+i])))
	}
	for i := range brokers {
		err := c.format(ctx, i, local(ports[brokers+i]), strings.Join(voters, ","))
		if err == nil {
			err = c.Start(i)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	for i := range brokers {
		if err := c.Wait(ctx, i); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// classes returns the folder of Kafka's classes, fetching them where they are not there yet.
func classes(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("%w (Debian: apt-get install default-jre-headless)", err)
	}
	cache, err := fetch.Cache()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kafka", version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("%w (Debian: apt-get install maven)", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(project), 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, fetch.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=classes")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch Kafka %s: %w: %.300s", version, err, out)
	}
	if err := os.Rename(filepath.Join(work, "classes"), dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // otherwise another test was faster
			return "", err
		}
	}
	return dir, nil
}

func (c *Cluster) java(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j.configuration=file:log4j.properties", "-cp", filepath.Join(c.classes, "*")}, args...)...)
	cmd.Dir = dir
	return cmd
}

// format makes the folder of a broker.
func (c *Cluster) format(ctx context.Context, i int, controller, voters string) error {
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=%d
controller.quorum.voters=%s
listeners=PLAINTEXT://%s,CONTROLLER://%s
advertised.listeners=PLAINTEXT://%s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=%d
group.initial.rebalance.delay.ms=0
`, i+1, voters, c.Brokers[i], controller, c.Brokers[i], min(3, len(c.processes)))
	if err := os.MkdirAll(c.dirs[i], 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"server.properties": properties, "log4j.properties": logging} {
		if err := os.WriteFile(filepath.Join(c.dirs[i], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	cmd := c.java(ctx, c.dirs[i], "kafka.tools.StorageTool", "format", "-t", "Q29yYmVsQ29yYmVsMDAwMA", "-c",
		"server.properties")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka: format: %w: %s", err, out)
	}
	return nil
}

// Start starts a broker, again where it was killed, and does not wait for it.
func (c *Cluster) Start(i int) (err error) {
	c.processes[i], err = spawn.Run(c.java(context.Background(), c.dirs[i], "kafka.Kafka", "server.properties"))
	return err
}

// Wait waits until a broker takes connections.
func (c *Cluster) Wait(ctx context.Context, i int) error {
	p := c.processes[i]
	return spawn.Until(ctx, startLimit, fmt.Sprintf("broker %d of Kafka", i+1), func() error {
		if !p.Running() {
			return spawn.Hopeless(fmt.Errorf("it ended: %w\n%s", p.Err(), p.Log()))
		}
		nc, err := net.DialTimeout("tcp", c.Brokers[i], time.Second)
		if err != nil {
			return err
		}
		return nc.Close()
	})
}

// Kill ends a broker at once, as kill -9 does.
func (c *Cluster) Kill(i int) {
	if c.processes[i] != nil {
		c.processes[i].Kill()
	}
}

// Close kills all.
func (c *Cluster) Close() {
	for i := range c.processes {
		c.Kill(i)
	}
}
