package version

import (
	"slices"
	"strings"
)

// TagFeatures is the gossip tag in which a server tells what it has switched on of Features, with commas.
const TagFeatures = "ft"

// JobsOrder is the feature of servers of the jobs plane that leave out late updates of nodes where a command has them
// do it (jobs/jobstore): once one has, a release without it makes something else of the log.
const JobsOrder = "jobs_order"

// Features are what a server may have switched on that another release may lack: one that lacks what a cluster uses
// must not take part in it. A name is never used again for something else. A new plane, or a setting that changes what
// servers store or say to each other, comes with a name here.
var Features = []string{"acl", "auto_encrypt", "federation", "gossip_key", "jobs", JobsOrder, "mesh", "monitor",
	"read_replica", "secrets", "usage"}

// LackedFeatures returns what a server told in TagFeatures and this release does not know.
func LackedFeatures(told string) (list []string) {
	for name := range strings.SplitSeq(told, ",") {
		if name != "" && !slices.Contains(Features, name) {
			list = append(list, name)
		}
	}
	return list
}
