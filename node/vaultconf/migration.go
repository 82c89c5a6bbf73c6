package vaultconf

import (
	"errors"

	"corbel.dev/corbel/node/config"
)

// Migration is what a copy from one storage to another is told: storage_source, storage_destination and, for Raft,
// cluster_addr.
type Migration struct {
	Warnings    []string
	From, To    Block
	ClusterAddr string
}

// LoadMigration reads a file.
func LoadMigration(path string) (*Migration, error) {
	sources, err := read(path)
	if err != nil {
		return nil, err
	}
	r := &reader{cfg: &Config{}}
	m := &Migration{}
	for _, s := range sources {
		tree, err := config.Tree([]byte(s.Text), s.Format)
		if err != nil {
			return nil, err
		}
		k := &Keys{r: r, values: lower(tree)}
		for name, to := range map[string]*Block{"storage_source": &m.From, "storage_destination": &m.To} {
			switch blocks := k.Labelled(name); {
			case len(blocks) == 1 && to.Keys == nil:
				*to = blocks[0]
			case len(blocks) > 0:
				r.fail("%s: there is more than one", name)
			}
		}
		m.ClusterAddr = k.String("cluster_addr", m.ClusterAddr)
		k.Done()
	}
	for name, b := range map[string]Block{"storage_source": m.From, "storage_destination": m.To} {
		if b.Keys == nil {
			r.fail("%s: is missing, as in %s \"raft\" { path = \"...\" }", name, name)
		}
	}
	m.Warnings = r.cfg.Warnings
	return m, errors.Join(r.wrong...)
}
