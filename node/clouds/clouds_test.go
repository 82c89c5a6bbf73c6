package clouds

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/k8s/kubetest"
	"corbel.dev/corbel/node/cloudjoin"
)

// TestMain is a child too: the tests start themselves.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == cloudjoin.ChildCommand {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// answers are what the clouds say, in the form that their API references give, by host and path.
var answers = map[string]string{
	"ec2.us-east-1.amazonaws.com/": `<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><reservationSet>
<item><reservationId>r-1</reservationId><ownerId>1</ownerId><instancesSet><item><instanceId>i-1</instanceId>
<instanceState><code>16</code><name>running</name></instanceState><privateIpAddress>10.1.0.1</privateIpAddress>
<ipAddress>203.0.113.1</ipAddress><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId>
<ipv6AddressesSet><item><ipv6Address>2001:db8::1</ipv6Address></item></ipv6AddressesSet></item></networkInterfaceSet>
</item></instancesSet></item></reservationSet><nextToken>second</nextToken></DescribeInstancesResponse>`,
	"ec2.us-east-1.amazonaws.com/ second": `<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><reservationSet>
<item><reservationId>r-2</reservationId><ownerId>1</ownerId><instancesSet><item><instanceId>i-2</instanceId>
<instanceState><code>16</code><name>running</name></instanceState><privateIpAddress>10.1.0.2</privateIpAddress>
</item></instancesSet></item></reservationSet></DescribeInstancesResponse>`,
	"ecs.us-east-1.amazonaws.com/ ListClusters": `{"clusterArns":["arn:aws:ecs:us-east-1:1:cluster/a"]}`,
	"ecs.us-east-1.amazonaws.com/ ListTasks":    `{"taskArns":["arn:aws:ecs:us-east-1:1:task/a/1","arn:aws:ecs:us-east-1:1:task/a/2"]}`,
	"ecs.us-east-1.amazonaws.com/ DescribeTasks": `{"tasks":[{"desiredStatus":"RUNNING","tags":[{"key":"role","value":"server"}],
"containers":[{"networkInterfaces":[{"attachmentId":"x","privateIpv4Address":"10.1.1.1"}]}]},
{"desiredStatus":"RUNNING","tags":[],"containers":[{"networkInterfaces":[{"privateIpv4Address":"10.1.1.2"}]}]}]}`,

	"login.microsoftonline.com/tenant/oauth2/token": `{"token_type":"Bearer","expires_in":"3599","expires_on":"4102444800",
"not_before":"0","resource":"https://management.azure.com/","access_token":"azure-token"}`,
	"management.azure.com/subscriptions/sub/providers/Microsoft.Network/networkInterfaces": `{"value":[
{"id":"/nic/1","tags":{"role":"server"},"properties":{"ipConfigurations":[{"properties":{"privateIPAddress":"10.2.0.1"}}]}},
{"id":"/nic/2","tags":{"role":"other"},"properties":{"ipConfigurations":[{"properties":{"privateIPAddress":"10.2.0.2"}}]}},
{"id":"/nic/3","tags":{"role":"server"},"properties":{"ipConfigurations":[{"properties":{"privateIPAddress":"10.2.0.3"}}]}}]}`,

	"oauth2.googleapis.com/token": `{"access_token":"gce-token","expires_in":3600,"token_type":"Bearer"}`,
	"compute.googleapis.com/compute/v1/projects/fleet/zones": `{"kind":"compute#zoneList","items":[
{"name":"europe-west1-b"},{"name":"europe-west1-c"}]}`,
	"compute.googleapis.com/compute/v1/projects/fleet/zones/europe-west1-b/instances": `{"kind":"compute#instanceList","items":[
{"name":"s1","tags":{"items":["server"]},"networkInterfaces":[{"networkIP":"10.3.0.1"}]},
{"name":"w1","tags":{"items":["web"]},"networkInterfaces":[{"networkIP":"10.3.0.2"}]}]}`,
	"compute.googleapis.com/compute/v1/projects/fleet/zones/europe-west1-c/instances": `{"kind":"compute#instanceList","items":[
{"name":"s2","tags":{"items":["server"]},"networkInterfaces":[{"networkIP":"10.3.0.3"}]}]}`,

	"api.digitalocean.com/v2/droplets": `{"droplets":[{"id":1,"name":"s1","region":{"slug":"fra1"},"networks":{"v4":[
{"ip_address":"10.4.0.1","type":"private"},{"ip_address":"203.0.113.4","type":"public"}]}},
{"id":2,"name":"s2","region":{"slug":"ams3"},"networks":{"v4":[{"ip_address":"10.4.0.2","type":"private"}]}}],
"links":{},"meta":{"total":2}}`,

	"api.linode.com/v4/linode/instances":       `{"data":[{"id":7,"label":"s1"}],"page":1,"pages":1,"results":1}`,
	"api.linode.com/v4/linode/instances/7/ips": `{"ipv4":{"private":[{"address":"192.168.5.1"}],"public":[]},"ipv6":{}}`,

	"keystone.example.com/v3/auth/tokens": `{"token":{"expires_at":"2099-01-01T00:00:00.000000Z","catalog":[{"type":"compute",
"name":"nova","id":"c","endpoints":[{"id":"e","interface":"public","region":"RegionOne","region_id":"RegionOne",
"url":"https://nova.example.com/v2.1"}]}]}}`,
	"nova.example.com/v2.1/servers/detail": `{"servers":[{"id":"1","name":"s1","status":"ACTIVE","metadata":{"role":"server"},
"addresses":{"lan":[{"addr":"10.6.0.1","version":4,"OS-EXT-IPS:type":"fixed"},
{"addr":"203.0.113.6","version":4,"OS-EXT-IPS:type":"floating"}]}}]}`,
}

func cloud(w http.ResponseWriter, r *http.Request) {
	at := r.Host + r.URL.Path
	if strings.HasSuffix(r.Host, ".amazonaws.com") {
		body, err := io.ReadAll(r.Body)
		q, bad := url.ParseQuery(string(body))
		action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonEC2ContainerServiceV20141113.")
		if more := q.Get("NextToken") + action; more != "" {
			at += " " + more
		}
		if err != nil || !strings.Contains(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=A/") ||
			action == "" && (bad != nil || q.Get("Filter.1.Name") != "tag:role") {
			http.Error(w, "this is no signed call", http.StatusForbidden)
			return
		}
	}
	text, ok := answers[at]
	if !ok {
		http.Error(w, `{"error":"not recorded"}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(text, "<?xml"):
		w.Header().Set("Content-Type", "text/xml")
	case r.Host == "keystone.example.com":
		w.Header().Set("X-Subject-Token", "os-token")
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write([]byte(text))
}

// TestClouds asks each cloud by the library, in a child process, over TLS; what the clouds answer is recorded from the
// references of their APIs.
func TestClouds(t *testing.T) {
	n := newInternet(t, http.HandlerFunc(cloud))
	asker := child(t, n)
	account := googleAccount(t)
	for _, c := range []struct {
		entry string
		want  []string
	}{
		{"provider=aws region=us-east-1 tag_key=role tag_value=server access_key_id=A secret_access_key=S",
			[]string{"10.1.0.1", "10.1.0.2"}},
		{"provider=aws region=us-east-1 addr_type=public_v4 tag_key=role tag_value=server access_key_id=A " +
			"secret_access_key=S", []string{"203.0.113.1"}},
		{"provider=aws region=us-east-1 addr_type=public_v6 tag_key=role tag_value=server access_key_id=A " +
			"secret_access_key=S", []string{"2001:db8::1"}},
		{"provider=aws service=ecs region=us-east-1 tag_key=role tag_value=server access_key_id=A secret_access_key=S",
			[]string{"10.1.1.1"}},
		{"provider=azure tenant_id=tenant client_id=c subscription_id=sub secret_access_key='S=' tag_name=role " +
			"tag_value=server", []string{"10.2.0.1", "10.2.0.3"}},
		{"provider=gce project_name=fleet tag_value=server credentials_file=" + account,
			[]string{"10.3.0.1", "10.3.0.3"}},
		{"provider=digitalocean region=fra1 tag_name=server api_token=T", []string{"10.4.0.1"}},
		{"provider=linode tag_name=server api_token=T", []string{"192.168.5.1"}},
		{"provider=os auth_url=https://keystone.example.com/v3 project_id=p tag_key=role tag_value=server user_name=u " +
			"password=S domain_name=Default", []string{"10.6.0.1"}},
	} {
		e, err := cloudjoin.Parse(c.entry)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(e.Provider(), func(t *testing.T) {
			got, err := asker.Addrs(t.Context(), e)
			if err != nil || !slices.Equal(got, c.want) {
				n.mu.Lock()
				defer n.mu.Unlock()
				t.Errorf("%q, %v; want %q; asked were %q", got, err, c.want, n.asked)
			}
		})
	}
}

// child is an Asker whose children reach the test's internet alone.
func child(t *testing.T, n *internet) *cloudjoin.Asker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"HTTPS_PROXY": n.url, "HTTP_PROXY": n.url, "SSL_CERT_FILE": n.authority,
		"SSL_CERT_DIR": filepath.Dir(n.authority), "AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
		t.Setenv(key, value)
	}
	return &cloudjoin.Asker{Command: []string{self, cloudjoin.ChildCommand}}
}

// googleAccount writes the file of a service account.
func googleAccount(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "join@fleet.example.com",
		"private_key_id": "k", "token_uri": "https://oauth2.googleapis.com/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cloud that refuses is told with its words, and without the credential.
func TestRefusedByACloud(t *testing.T) {
	n := newInternet(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `<Response><Errors><Error><Code>AuthFailure</Code><Message>no key TOPSECRET</Message></Error></Errors>`+
			`<RequestID>r</RequestID></Response>`, http.StatusUnauthorized)
	}))
	e, err := cloudjoin.Parse("provider=aws region=us-east-1 tag_key=a tag_value=b access_key_id=A " +
		"secret_access_key=TOPSECRET")
	if err != nil {
		t.Fatal(err)
	}
	_, err = child(t, n).Addrs(t.Context(), e)
	if err == nil || !strings.Contains(err.Error(), "AuthFailure") || strings.Contains(err.Error(), "TOPSECRET") {
		t.Error(err)
	}
}

const kubeconfig = `current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "%s"}}]
users: [{name: u, user: {token: t}}]
`

func TestPods(t *testing.T) {
	s := kubetest.New(t)
	type list = []any
	put := func(name, phase, ready string, notes map[string]any) {
		s.Put("/api/v1/namespaces/fleet/pods", kubetest.Object{
			"metadata": map[string]any{"name": name, "annotations": notes},
			"spec": map[string]any{"containers": list{map[string]any{"ports": list{
				map[string]any{"name": "serf", "containerPort": 8301, "hostPort": 18301},
				map[string]any{"name": "http", "containerPort": 8500}}}}},
			"status": map[string]any{"phase": phase, "podIP": "10.7.0." + name, "hostIP": "10.8.0." + name,
				"conditions": list{map[string]any{"type": "Ready", "status": ready}}}})
	}
	put("1", "Running", "True", nil)
	put("2", "Pending", "True", nil)
	put("3", "Running", "False", nil)
	put("4", "Running", "True", map[string]any{portAnnotation: "serf"})
	put("5", "Running", "True", map[string]any{portAnnotation: "8500"})
	put("6", "Running", "True", map[string]any{portAnnotation: "dns"})
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, fmt.Appendf(nil, kubeconfig, s.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string][]string{
		"":     {"10.7.0.1", "10.7.0.4:8301", "10.7.0.5:8500"},
		"true": {"10.8.0.1", "10.8.0.4:18301"},
	} {
		got, err := pods{}.Addrs(map[string]string{"kubeconfig": file, "namespace": "fleet",
			"label_selector": "app=corbel,tier=server",
			"host_network":   host})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("host_network=%s: %q, %v; want %q", host, got, err, want)
		}
	}
	want := url.Values{"labelSelector": {"app=corbel,tier=server"}}.Encode()
	if !slices.ContainsFunc(s.Asked(), func(path string) bool { return strings.Contains(path, want) }) {
		t.Errorf("asked %q: want the selector", s.Asked())
	}
	if _, err := (pods{}).Addrs(map[string]string{"host_network": "perhaps"}); err == nil {
		t.Error("host_network=perhaps was taken")
	}
	t.Setenv("KUBECONFIG", file+string(os.PathListSeparator)+"/none")
	if got, err := (pods{}).Addrs(map[string]string{"namespace": "fleet"}); err != nil || len(got) != 3 {
		t.Errorf("%q, %v: want what KUBECONFIG's first file leads to", got, err)
	}
	t.Setenv("KUBECONFIG", "/none")
	if _, err := (pods{}).Addrs(map[string]string{}); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("%v: want that the file is not there", err)
	}
}

// What is understood and what is asked are the same clouds.
func TestAllProvidersAreThere(t *testing.T) {
	known := Providers()
	for _, name := range cloudjoin.Providers() {
		if known[name] == nil {
			t.Errorf("%s is read, and nobody asks it", name)
		}
	}
	if len(known) != len(cloudjoin.Providers()) {
		t.Errorf("%d clouds are asked, and %d read", len(known), len(cloudjoin.Providers()))
	}
}
