package clouds

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2/google"

	"corbel.dev/corbel/node/cloudjoin"
)

// gce asks Compute Engine for instances with a network tag. Credentials are the kept library's; the two calls are
// made here, for the reason that amazon's are.
type gce struct{}

const computeScope = "https://www.googleapis.com/auth/compute.readonly"

// Addrs implements cloudjoin.Provider.
func (gce) Addrs(args map[string]string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cloudjoin.Deadline)
	defer cancel()
	client, err := googleClient(ctx, args["credentials_file"])
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	project := args["project_name"]
	if project == "" {
		if project, err = metadata.ProjectIDWithContext(ctx); err != nil {
			return nil, fmt.Errorf("project_name: it is not named, and the instance's metadata do not tell it: %w", err)
		}
	}
	base := "https://compute.googleapis.com/compute/v1/projects/" + url.PathEscape(project) + "/zones"
	filter := ""
	if pattern := args["zone_pattern"]; pattern != "" {
		filter = "name eq " + pattern
	}
	zones, err := pages(ctx, client, base, filter)
	if err != nil {
		return nil, fmt.Errorf("zones: %w", err)
	}
	var addrs []string
	for _, zone := range zones {
		found, err := pages(ctx, client, base+"/"+url.PathEscape(zone.Name)+"/instances", "")
		if err != nil {
			return nil, fmt.Errorf("instances of %s: %w", zone.Name, err)
		}
		for _, i := range found {
			if slices.Contains(i.Tags.Items, args["tag_value"]) && len(i.NetworkInterfaces) > 0 {
				addrs = append(addrs, i.NetworkInterfaces[0].NetworkIP)
			}
		}
	}
	return addrs, nil
}

// googleClient signs in by a service account's file, else as Google's libraries do by default.
func googleClient(ctx context.Context, file string) (*http.Client, error) {
	if file == "" {
		return google.DefaultClient(ctx, computeScope)
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cfg, err := google.JWTConfigFromJSON(key, computeScope)
	if err != nil {
		return nil, err
	}
	return cfg.Client(ctx), nil
}

// item is a zone or an instance (Compute Engine's API reference, v1).
type item struct {
	Name              string
	Tags              struct{ Items []string }
	NetworkInterfaces []struct{ NetworkIP string }
}

// pages reads all pages of a list.
func pages(ctx context.Context, client *http.Client, at, filter string) ([]item, error) {
	q := url.Values{"maxResults": {"500"}}
	if filter != "" {
		q.Set("filter", filter)
	}
	var all []item
	for {
		var page struct {
			Items         []item
			NextPageToken string
		}
		if err := getJSON(ctx, client, at+"?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		const most = 100_000
		if page.NextPageToken == "" || len(all) > most {
			return all, nil
		}
		q.Set("pageToken", page.NextPageToken)
	}
}
