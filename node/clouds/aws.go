package clouds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"corbel.dev/corbel/node/cloudjoin"
)

// maxBody bounds one answer of a cloud, in bytes.
const maxBody = 64 << 20

// amazon asks EC2 for instances, or ECS for tasks. Credentials, regions and signatures are the SDK's. The calls are
// made here: the SDK's package of EC2 alone takes 3 GB of memory to be compiled.
type amazon struct{}

// Addrs implements cloudjoin.Provider.
func (amazon) Addrs(args map[string]string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cloudjoin.Deadline)
	defer cancel()
	var with []func(*config.LoadOptions) error
	if key, secret := args["access_key_id"], args["secret_access_key"]; key != "" && secret != "" {
		with = append(with, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(key, secret, args["session_token"])))
	}
	cfg, err := config.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, err
	}
	if cfg.Region, err = regionOf(ctx, cfg, args["region"]); err != nil {
		return nil, err
	}
	switch service := args["service"]; service {
	case "", "ec2":
		return instances(ctx, newService(cfg, "ec2", args["endpoint"]), args)
	case "ecs":
		return tasks(ctx, newService(cfg, "ecs", args["endpoint"]), args)
	default:
		return nil, fmt.Errorf("service: %q must be ec2 or ecs", service)
	}
}

// regionOf is what was said, else where the task or the instance is that this process runs in.
func regionOf(ctx context.Context, cfg aws.Config, said string) (string, error) {
	if said != "" {
		return said, nil
	}
	if at := os.Getenv("ECS_CONTAINER_METADATA_URI_V4"); at != "" {
		var task struct{ TaskARN string }
		if err := getJSON(ctx, http.DefaultClient, at+"/task", &task); err != nil {
			return "", fmt.Errorf("region: the task's metadata: %w", err)
		}
		if parts := strings.Split(task.TaskARN, ":"); len(parts) > 3 {
			return parts[3], nil
		}
		return "", fmt.Errorf("region: the task's name has none")
	}
	if cfg.Region != "" {
		return cfg.Region, nil
	}
	out, err := imds.NewFromConfig(cfg).GetRegion(ctx, &imds.GetRegionInput{})
	if err != nil {
		return "", fmt.Errorf("region: it is not named, and the instance's metadata do not tell it: %w", err)
	}
	return out.Region, nil
}

// service is one of Amazon's.
type service struct {
	cfg       aws.Config
	name, url string
}

func newService(cfg aws.Config, name, endpoint string) *service {
	if endpoint == "" {
		endpoint = "https://" + name + "." + cfg.Region + ".amazonaws.com"
		if strings.HasPrefix(cfg.Region, "cn-") {
			endpoint += ".cn"
		}
	}
	return &service{cfg, name, strings.TrimSuffix(endpoint, "/") + "/"}
}

// call posts a signed body and returns the answer's.
func (s *service) call(ctx context.Context, header map[string]string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for key, value := range header {
		req.Header.Set(key, value)
	}
	who, err := s.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	sum := sha256.Sum256(body)
	err = signer.NewSigner().SignHTTP(ctx, who, req, hex.EncodeToString(sum[:]), s.name, s.cfg.Region, time.Now())
	if err != nil {
		return nil, err
	}
	return answerOf(http.DefaultClient.Do(req))
}

// answerOf reads an answer, and makes an error of one that is no success.
func answerOf(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxBody:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxBody)
	case resp.StatusCode/100 != 2:
		const most = 500
		return nil, fmt.Errorf("%s: %s", resp.Status, text[:min(len(text), most)])
	}
	return text, nil
}

func getJSON(ctx context.Context, client *http.Client, at string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	text, err := answerOf(client.Do(req))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// described is a page of DescribeInstances (EC2's API reference, version 2016-11-15).
type described struct {
	Instances []struct {
		Private string   `xml:"privateIpAddress"`
		Public  string   `xml:"ipAddress"`
		V6      []string `xml:"networkInterfaceSet>item>ipv6AddressesSet>item>ipv6Address"`
	} `xml:"reservationSet>item>instancesSet>item"`
	Next string `xml:"nextToken"`
}

// instances are the addresses of those that run and have the tag.
func instances(ctx context.Context, s *service, args map[string]string) ([]string, error) {
	kind := args["addr_type"]
	switch kind {
	case "", "private_v4", "public_v4", "public_v6":
	default:
		return nil, fmt.Errorf("addr_type: %q must be private_v4, public_v4 or public_v6", kind)
	}
	q := url.Values{"Action": {"DescribeInstances"}, "Version": {"2016-11-15"}, "MaxResults": {"1000"},
		"Filter.1.Name": {"tag:" + args["tag_key"]}, "Filter.1.Value.1": {args["tag_value"]},
		"Filter.2.Name": {"instance-state-name"}, "Filter.2.Value.1": {"running"}}
	var addrs []string
	for len(addrs) <= cloudjoin.MaxAddrs {
		text, err := s.call(ctx, map[string]string{"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
			[]byte(q.Encode()))
		if err != nil {
			return nil, fmt.Errorf("DescribeInstances: %w", err)
		}
		var page described
		if err := xml.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("DescribeInstances: %w", err)
		}
		for _, i := range page.Instances {
			switch kind {
			case "public_v4":
				addrs = append(addrs, i.Public)
			case "public_v6":
				addrs = append(addrs, i.V6...)
			default:
				addrs = append(addrs, i.Private)
			}
		}
		if page.Next == "" {
			break
		}
		q.Set("NextToken", page.Next)
	}
	return addrs, nil
}

// listed is a page of what ECS lists.
type listed struct {
	ClusterARNs []string `json:"clusterArns"`
	TaskARNs    []string `json:"taskArns"`
	Next        string   `json:"nextToken"`
	Tasks       []task   `json:"tasks"`
}

type task struct {
	DesiredStatus string
	Tags          []struct{ Key, Value string }
	Containers    []struct {
		NetworkInterfaces []struct {
			Private string `json:"privateIpv4Address"`
		}
	}
}

// addr is the task's when it runs and has the tag; else "".
func (t *task) addr(key, value string) string {
	tagged := false
	for _, tag := range t.Tags {
		tagged = tagged || tag.Key == key && tag.Value == value
	}
	if !tagged || t.DesiredStatus != "RUNNING" {
		return ""
	}
	for _, c := range t.Containers {
		for _, n := range c.NetworkInterfaces {
			if n.Private != "" {
				return n.Private
			}
		}
	}
	return ""
}

// ecs calls an action of the ECS API, version 2014-11-13.
func (s *service) ecs(ctx context.Context, action string, in map[string]any) (out listed, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	text, err := s.call(ctx, map[string]string{"Content-Type": "application/x-amz-json-1.1",
		"X-Amz-Target": "AmazonEC2ContainerServiceV20141113." + action}, body)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", action, err)
	}
	return out, nil
}

// list reads all pages of an action.
func (s *service) list(ctx context.Context, action string, in map[string]any, of func(*listed) []string) ([]string,
	error) {
	var all []string
	for {
		page, err := s.ecs(ctx, action, in)
		if err != nil {
			return nil, err
		}
		all = append(all, of(&page)...)
		if page.Next == "" || len(all) > cloudjoin.MaxAddrs*10 {
			return all, nil
		}
		in["nextToken"] = page.Next
	}
}

// tasks are the addresses of those that run and have the tag, in one cluster or all.
func tasks(ctx context.Context, s *service, args map[string]string) ([]string, error) {
	clusters := []string{args["ecs_cluster"]}
	if args["ecs_cluster"] == "" {
		var err error
		clusters, err = s.list(ctx, "ListClusters", map[string]any{}, func(l *listed) []string { return l.ClusterARNs })
		if err != nil {
			return nil, err
		}
	}
	var addrs []string
	for _, cluster := range clusters {
		in := map[string]any{"cluster": cluster, "desiredStatus": "RUNNING"}
		if family := args["ecs_family"]; family != "" {
			in["family"] = family
		}
		arns, err := s.list(ctx, "ListTasks", in, func(l *listed) []string { return l.TaskARNs })
		if err != nil {
			return nil, err
		}
		const most = 100 // that DescribeTasks takes
		for len(arns) > 0 {
			n := min(len(arns), most)
			page, err := s.ecs(ctx, "DescribeTasks", map[string]any{"cluster": cluster, "tasks": arns[:n],
				"include": []string{"TAGS"}})
			if err != nil {
				return nil, err
			}
			for _, t := range page.Tasks {
				addrs = append(addrs, t.addr(args["tag_key"], args["tag_value"]))
			}
			arns = arns[n:]
		}
	}
	return addrs, nil
}
