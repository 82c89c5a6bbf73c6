package faultrun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

// Client speaks HTTP to one server at a time, with short deadlines. It never
// repeats a request by itself. One goroutine.
type Client struct {
	// Timeout bounds a request that does not block; default 5 s.
	Timeout time.Duration

	addr string
	http *http.Client
}

// NewClient makes a client of the server at addr: host:port, or unix://path.
func NewClient(addr string) *Client {
	transport := &http.Transport{DialContext: harness.Dial,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second, DisableCompression: true,
	}
	return &Client{Timeout: 5 * time.Second, addr: addr, http: &http.Client{Transport: transport}}
}

// At turns the client to another server.
func (c *Client) At(addr string) *Client {
	c.addr = addr
	return c
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Reply is what became of a request.
type Reply struct {
	// Status is 0 when there was no answer; Err then says why.
	Status int
	Body   []byte
	Header http.Header
	Err    error
	// Outcome is what may be concluded for a write.
	Outcome history.Outcome
	Took    time.Duration
}

// String is the reply in one line.
func (r Reply) String() string {
	if r.Err != nil {
		return fmt.Sprintf("no answer after %s: %v", r.Took.Round(time.Millisecond), r.Err)
	}
	return fmt.Sprintf("status %d: %.200s", r.Status, bytes.TrimSpace(r.Body))
}

// Index is the answer's X-Consul-Index.
func (r Reply) Index() uint64 {
	n, _ := strconv.ParseUint(r.Header.Get("X-Consul-Index"), 10, 64)
	return n
}

// Do sends one request and reads its answer to the end.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) Reply {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	begin := time.Now()
	r := c.do(ctx, method, path, body)
	r.Took = time.Since(begin)
	return r
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) Reply {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := http.NewRequestWithContext(ctx, method, harness.URL(c.addr, path), bytes.NewReader(body))
	if err != nil {
		return Reply{Err: err, Outcome: history.Failed}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Reply{Err: err, Outcome: unanswered(connected)}
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	if err == nil && len(answer) > mostAnswer {
		err = fmt.Errorf("%s: an answer of more than %d bytes", path, mostAnswer)
	}
	if err != nil {
		return Reply{Err: err, Header: resp.Header, Outcome: history.Unknown}
	}
	return Reply{Status: resp.StatusCode, Body: answer, Header: resp.Header,
		Outcome: classify(resp.StatusCode, string(answer))}
}

// mostAnswer bounds an answer: a list of 53,000 allocations has more than 64 MiB.
const mostAnswer = 512 << 20

// unanswered judges a request without an answer: without a connection nothing
// was sent, with one nobody knows. A connection that was kept from before counts
// too: whether the server read from it before it closed it cannot be told.
func unanswered(connected bool) history.Outcome {
	if connected {
		return history.Unknown
	}
	return history.Failed
}

// classify judges an answered write by the promises of the API: a refusal for want
// of a leader or of room, and every 4xx, did nothing; any other 5xx may have done it.
func classify(status int, body string) history.Outcome {
	body = strings.TrimSpace(body)
	switch {
	case status >= 200 && status < 300:
		return history.OK
	case status >= 400 && status < 500:
		return history.Failed
	case status == http.StatusServiceUnavailable && strings.HasPrefix(body, "rate limit exceeded"):
		return history.Failed
	case status == http.StatusInternalServerError && (body == "No cluster leader" || body == "No known Consul servers"):
		return history.Failed
	}
	return history.Unknown
}

// end gives a recorded operation the reply's outcome, with answered as the steps when it was OK.
func (r Reply) end(p *history.Pending, answered ...history.Step) {
	switch r.Outcome {
	case history.OK:
		p.OK(answered...)
	case history.Failed:
		p.Fail(errors.New(r.String()))
	default:
		p.Unknown(errors.New(r.String()))
	}
}

// Pair is a KVPair as the API prints it.
type Pair struct {
	Key                             string
	Value                           *string
	Session                         string
	LockIndex                       uint64
	CreateIndex, ModifyIndex, Flags uint64
}

func (p Pair) Text() string {
	if p.Value == nil {
		return ""
	}
	raw, err := base64.StdEncoding.DecodeString(*p.Value)
	if err != nil {
		return "not base64: " + *p.Value
	}
	return string(raw)
}

// get reads one key. found is meaningful when the reply is 200 or 404.
func (c *Client) get(ctx context.Context, key, params string) (p Pair, found bool, r Reply) {
	r = c.Do(ctx, "GET", "/v1/kv/"+key+params, nil)
	if r.Status == http.StatusNotFound {
		r.Outcome = history.OK
		return p, false, r
	}
	var list []Pair
	if r.Status == http.StatusOK {
		if err := json.Unmarshal(r.Body, &list); err != nil || len(list) != 1 {
			r.Outcome, r.Err = history.Unknown, fmt.Errorf("not one pair: %.200s", r.Body)
			return p, false, r
		}
		return list[0], true, r
	}
	return p, false, r
}

// createSession makes a session without checks on a node that only tests use, so that only its client ends it.
func (c *Client) createSession(ctx context.Context, node string) (string, Reply) {
	return c.openSession(ctx, node, "")
}

func (c *Client) openSession(ctx context.Context, node, name string) (string, Reply) {
	body := fmt.Sprintf(`{"Node":%q,"Name":%q,"LockDelay":"0s","NodeChecks":[],"Behavior":"release"}`, node, name)
	r := c.Do(ctx, "PUT", "/v1/session/create", []byte(body))
	var answer struct{ ID string }
	if r.Status == http.StatusOK && json.Unmarshal(r.Body, &answer) != nil {
		r.Outcome, r.Err = history.Unknown, fmt.Errorf("no id: %.200s", r.Body)
	}
	return answer.ID, r
}

// RegisterNode puts a node into the catalog that no server owns.
func (c *Client) RegisterNode(ctx context.Context, node string) error {
	body := fmt.Sprintf(`{"Node":%q,"Address":"192.0.2.1"}`, node)
	return spawn.Until(ctx, 20*time.Second, "registering "+node, func() error {
		if r := c.Do(ctx, "PUT", "/v1/catalog/register", []byte(body)); r.Status != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
}

// txnOp is one operation of a transaction as the API reads it.
type txnOp struct {
	KV txnKV
}

type txnKV struct {
	Verb, Key string
	Value     []byte `json:",omitempty"`
	Index     uint64 `json:",omitempty"`
	Session   string `json:",omitempty"`
}

// txn sends a transaction; pairs are those of its Results.
func (c *Client) txn(ctx context.Context, ops ...txnOp) (pairs []Pair, r Reply) {
	return c.sendTxn(ctx, "/v1/txn", ops)
}

// txnConsistent sends a transaction that only reads.
func (c *Client) txnConsistent(ctx context.Context, ops ...txnOp) (pairs []Pair, r Reply) {
	return c.sendTxn(ctx, "/v1/txn?consistent", ops)
}

func (c *Client) sendTxn(ctx context.Context, path string, ops []txnOp) (pairs []Pair, r Reply) {
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, Reply{Err: err, Outcome: history.Failed}
	}
	r = c.Do(ctx, "PUT", path, body)
	if r.Status != http.StatusOK {
		return nil, r
	}
	var answer struct{ Results []struct{ KV Pair } }
	if err := json.Unmarshal(r.Body, &answer); err != nil {
		r.Outcome, r.Err = history.Unknown, err
		return nil, r
	}
	for _, result := range answer.Results {
		pairs = append(pairs, result.KV)
	}
	return pairs, r
}

var errNone = errors.New("no error")

// OrNone is an error for a text that has one always.
func OrNone(err error) error { return cmp.Or(err, errNone) }
