package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// httpMain is what scripts have for curl: http [-X METHOD] [-d BODY] [-H HEADER] [-i] [-s STATUS] PATH
// asks CORBEL_HTTP_ADDR and prints the body; any other status than STATUS fails.
func httpMain() {
	method := flag.String("X", "GET", "method")
	body := flag.String("d", "", "body")
	status := flag.Int("s", 200, "status that must come")
	head := flag.Bool("i", false, "the headers too")
	header := flag.String("H", "", "a header of the request, Name: value")
	flag.Parse()
	req, err := http.NewRequest(*method, "http://"+os.Getenv("CORBEL_HTTP_ADDR")+flag.Arg(0), strings.NewReader(*body))
	if err != nil {
		fail("%v", err)
	}
	if name, value, ok := strings.Cut(*header, ": "); ok {
		req.Header.Set(name, value)
	}
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Do(req)
	if err != nil {
		fail("%v", err)
	}
	defer resp.Body.Close()
	if *head {
		_ = resp.Header.Write(os.Stdout) // to who reads this command's output
	}
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		fail("%v", err)
	}
	if resp.StatusCode != *status {
		fail("status %s, want %d", resp.Status, *status)
	}
}

// digMain asks the DNS server in $DNS: dig [-tcp] NAME [TYPE]. It prints the code and the answer's records.
func digMain() {
	tcp := flag.Bool("tcp", false, "over TCP")
	flag.Parse()
	kind := dns.TypeA
	if flag.NArg() > 1 {
		kind = dns.StringToType[flag.Arg(1)]
	}
	q := new(dns.Msg).SetQuestion(dns.Fqdn(flag.Arg(0)), kind)
	c := dns.Client{Timeout: 5 * time.Second}
	if *tcp {
		c.Net = "tcp"
	}
	r, _, err := c.Exchange(q, os.Getenv("DNS"))
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(dns.RcodeToString[r.Rcode])
	for _, rr := range r.Answer {
		fmt.Println(strings.ReplaceAll(rr.String(), "\t", " "))
	}
}

// awaitRest is the longest pause of await.
const awaitRest = 400 * time.Millisecond

// awaitMain runs a command again and again until it succeeds and its output
// matches, for up to a minute: await PATTERN COMMAND ARGUMENT... The start of a process is dear, and the one that is
// waited for needs the CPU: so it rests five times as long as the command took.
func awaitMain() {
	if len(os.Args) < 3 {
		fail("usage: await PATTERN COMMAND ARGUMENT...")
	}
	want, err := regexp.Compile("(?m)" + os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		begin := time.Now()
		var out, errs bytes.Buffer
		cmd := exec.Command(os.Args[2], os.Args[3:]...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err == nil && want.Match(out.Bytes()) {
			_, _ = os.Stdout.Write(out.Bytes())
			return
		}
		if time.Now().After(deadline) {
			fail("%s: %v; no match of %q in\n%s%s", strings.Join(os.Args[2:], " "), err, os.Args[1], out.Bytes(), errs.Bytes())
		}
		<-time.After(min(5*time.Since(begin), awaitRest))
	}
}

// serveMain is a service whose health is a file: serve PORT FILE answers 200 while FILE is there, 503 otherwise.
func serveMain() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(os.Args[2]); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
	go func() { <-sig; _ = srv.Close() }()
	_ = srv.Serve(l)
}
