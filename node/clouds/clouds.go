// Package clouds is the door to the libraries of clouds that are asked which machines may be joined.
//
// They are linked into the binary, and run in a child process alone (node/cloudjoin): most take no deadline, and what
// they allocate is given back with the child.
package clouds

import (
	"io"
	"log"

	"github.com/hashicorp/go-discover/provider/azure"
	"github.com/hashicorp/go-discover/provider/digitalocean"
	"github.com/hashicorp/go-discover/provider/linode"
	"github.com/hashicorp/go-discover/provider/mdns"
	"github.com/hashicorp/go-discover/provider/os"

	"corbel.dev/corbel/node/cloudjoin"
)

// talkative is a provider of go-discover.
type talkative interface {
	Addrs(args map[string]string, l *log.Logger) ([]string, error)
}

// quiet is one whose chatter nobody reads.
type quiet struct{ talkative }

func (q quiet) Addrs(args map[string]string) ([]string, error) {
	return q.talkative.Addrs(args, log.New(io.Discard, "", 0))
}

// Providers are the clouds that can be asked, by name.
func Providers() map[string]cloudjoin.Provider {
	return map[string]cloudjoin.Provider{
		"aws":          amazon{},
		"azure":        quiet{&azure.Provider{}},
		"digitalocean": quiet{&digitalocean.Provider{}},
		"gce":          gce{},
		"k8s":          pods{},
		"linode":       quiet{&linode.Provider{}},
		"mdns":         quiet{&mdns.Provider{}},
		"os":           quiet{&os.Provider{}},
	}
}

// Serve is a child that asks.
func Serve(in io.Reader, out io.Writer) error {
	return cloudjoin.Serve(in, out, Providers())
}
