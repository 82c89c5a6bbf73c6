package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/test/cmdline"
)

// lineTimeout bounds how long an answer may take to say what the page shows.
const lineTimeout = 60 * time.Second

// TestExtensions does what docs/extensions.md shows, in its order, against one server:
// each curl command of the sh blocks, and each line of the json block that follows one
// must be among what the commands of that block answered. "…" stands for anything.
func TestExtensions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "extensions.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := &curl{t: t, base: devServer(t)}
	commands, answers := 0, 0
	for _, b := range blocks(string(page)) {
		if b.kind == "json" {
			for _, want := range b.lines {
				answers++
				c.expect(want)
			}
			continue
		}
		c.close()
		for _, line := range b.lines {
			if args := cmdline.Words(line); len(args) > 0 && args[0] == "curl" {
				commands++
				c.run(args[1:])
			}
		}
	}
	c.close()
	if commands < 5 || answers < 3 {
		t.Errorf("only %d commands and %d answers were found: has the form of the page changed?", commands, answers)
	}
}

// devServer starts corbel dev and returns its address.
func devServer(t *testing.T) string {
	ports := make([]string, 4)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = strconv.Itoa(port)
	}
	cmd := exec.Command(filepath.Join(binDir, "corbel"), "dev", "--http-port", ports[0], "--dns-port", ports[1],
		"--server-port", ports[2], "--serf-lan-port", ports[3], "--node", "dev")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	base := "http://127.0.0.1:" + ports[0]
	polltest.Within(t, 2*lineTimeout, func() bool {
		resp, err := http.Get(base + "/v1/catalog/node/dev?token=root")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `"consul"`)
	}, "the server to have registered itself")
	return base
}

type block struct {
	kind  string
	lines []string
}

// blocks are the sh and json blocks of a page.
func blocks(page string) (list []block) {
	kind := ""
	for line := range strings.SplitSeq(page, "\n") {
		fence, is := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case is && kind == "":
			kind = fence
			if kind == "sh" || kind == "json" {
				list = append(list, block{kind: kind})
			}
		case is:
			kind = ""
		case kind == "sh" || kind == "json":
			list[len(list)-1].lines = append(list[len(list)-1].lines, strings.TrimSpace(line))
		}
	}
	return list
}

// curl does the requests of one block and keeps what they answered. Streams are read in
// the background until the next block.
type curl struct {
	t       *testing.T
	base    string
	index   string // of the latest answer that had one
	stream  string // of the latest answer that had one
	lines   chan string
	seen    []string
	running []chan struct{}
	cancel  []context.CancelFunc
}

var indexField = regexp.MustCompile(`"Index":(\d+)`)

func (c *curl) run(args []string) {
	method, body, url := "", "", ""
	headers := http.Header{}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-X":
			i++
			method = args[i]
		case args[i] == "-d":
			i++
			body = args[i]
		case args[i] == "-H":
			i++
			k, v, _ := strings.Cut(args[i], ": ")
			headers.Set(k, v)
		case strings.HasPrefix(args[i], "-"): // -s, -N
		default:
			url = args[i]
		}
	}
	if method == "" {
		method = map[bool]string{true: "GET", false: "POST"}[body == ""]
	}
	url = strings.NewReplacer("http://127.0.0.1:8500", c.base, "$INDEX", c.index, "$STREAM", c.stream).Replace(url)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = headers
	req.Header.Set("X-Consul-Token", "root") // dev's
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.lines == nil {
		c.lines = make(chan string, 1000)
	}
	c.cancel = append(c.cancel, cancel)
	if resp.Header.Get("X-Corbel-Stream") != "" {
		c.stream = resp.Header.Get("X-Corbel-Stream")
		done, lines := make(chan struct{}), c.lines
		c.running = append(c.running, done)
		go func() {
			defer close(done)
			defer resp.Body.Close()
			for in := bufio.NewScanner(resp.Body); in.Scan(); {
				lines <- in.Text()
			}
		}()
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var compact bytes.Buffer // dev indents
	if json.Compact(&compact, text) == nil {
		text = compact.Bytes()
	}
	if m := indexField.FindSubmatch(text); m != nil {
		c.index = string(m[1])
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		c.lines <- fmt.Sprintf("%d %s", resp.StatusCode, line)
	}
}

// expect waits for an answer that fits.
func (c *curl) expect(want string) {
	c.t.Helper()
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	fits := regexp.MustCompile(strings.Join(parts, ".*"))
	for _, line := range c.seen {
		if fits.MatchString(line) {
			return
		}
	}
	late := time.After(lineTimeout)
	for {
		select {
		case line := <-c.lines:
			c.seen = append(c.seen, line)
			if fits.MatchString(line) {
				return
			}
		case <-late:
			c.t.Fatalf("no answer fits\n%s\nof\n%s", want, strings.Join(c.seen, "\n"))
		}
	}
}

// close ends the streams of the block before.
func (c *curl) close() {
	for _, cancel := range c.cancel {
		cancel()
	}
	for _, done := range c.running {
		<-done
	}
	c.cancel, c.running, c.seen, c.lines = nil, nil, nil, nil
}
