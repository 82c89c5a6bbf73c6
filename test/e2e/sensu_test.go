package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// sensucurlMain sends what sensuctl sends: sensucurl [-u USER:PASSWORD | -t TOKENS] [-X METHOD] [-d BODY | -r] [-s
// STATUS] PATH asks CORBEL_MONITOR_ADDR and prints the body, behind headers that matter. TOKENS is a file that GET
// /auth printed; -r sends its refresh token as the body.
func sensucurlMain() {
	user := flag.String("u", "", "user:password")
	file := flag.String("t", "", "file of tokens")
	method := flag.String("X", "GET", "method")
	body := flag.String("d", "", "body")
	refresh := flag.Bool("r", false, "send the refresh token")
	status := flag.Int("s", 200, "status that must come")
	flag.Parse()
	var tokens struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err == nil {
			err = json.Unmarshal(text, &tokens)
		}
		if err != nil {
			fail("%s: %v", *file, err)
		}
	}
	if *refresh {
		*body = fmt.Sprintf(`{"refresh_token":%q}`, tokens.Refresh)
	}
	req, err := http.NewRequest(*method, os.Getenv("CORBEL_MONITOR_ADDR")+flag.Arg(0), strings.NewReader(*body))
	if err != nil {
		fail("%v", err)
	}
	req.Header.Set("User-Agent", "sensuctl/6.12.0")
	req.Header.Set("Content-Type", "application/json")
	if name, password, ok := strings.Cut(*user, ":"); ok {
		req.SetBasicAuth(name, password)
	} else if tokens.Access != "" {
		req.Header.Set("Authorization", "Bearer "+tokens.Access)
	}
	c := http.Client{Timeout: 15 * time.Second}
	resp, err := c.Do(req)
	if err != nil {
		fail("%v", err)
	}
	defer resp.Body.Close()
	for _, name := range []string{"Sensu-Continue", "Location"} {
		if v := resp.Header.Get(name); v != "" {
			fmt.Println(name+":", v)
		}
	}
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		fail("%v", err)
	}
	if resp.StatusCode != *status {
		fail("status %s, want %d", resp.Status, *status)
	}
}
