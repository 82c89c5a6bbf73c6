package bodies

import (
	"net/http"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/definition"
)

// Register is the body of a registration.
type Register struct {
	Datacenter      string
	ID              string
	Node            string
	Address         string
	TaggedAddresses map[string]string
	NodeMeta        map[string]string
	Service         *Service
	Check           *Check
	Checks          []*Check
	SkipNodeUpdate  bool
	Locality        *catalog.Locality
}

// Command is what the registration asks of the catalog.
func (in *Register) Command(datacenter string) (*catalog.Register, error) {
	if in.Node == "" {
		return nil, answer.Fail(http.StatusInternalServerError, "Must provide node")
	}
	if in.Address == "" && !in.SkipNodeUpdate {
		return nil, answer.Fail(http.StatusInternalServerError, "Must provide address if SkipNodeUpdate is not set")
	}
	node := Node{ID: in.ID, Node: in.Node, Address: in.Address, Datacenter: datacenter,
		TaggedAddresses: in.TaggedAddresses, Meta: in.NodeMeta, Locality: in.Locality}
	cmd := &catalog.Register{Node: *node.Catalog(), SkipNodeUpdate: in.SkipNodeUpdate}
	if in.Service != nil {
		s, err := in.Service.Catalog(in.Node)
		if err != nil {
			return nil, err
		}
		if err := definition.ValidateTags(s.Tags); err != nil {
			return nil, err
		}
		if s.Name == "" {
			return nil, answer.Fail(http.StatusInternalServerError, "Must provide service name (Service.Service)")
		}
		if s.ID == "" {
			s.ID = s.Name
		}
		if in.Service.Weights == nil {
			s.Weights = catalog.Weights{Passing: 1, Warning: 1}
		}
		cmd.Service = s
	}
	if in.Check != nil {
		in.Checks = append(in.Checks, in.Check)
	}
	for _, w := range in.Checks {
		if w == nil {
			continue
		}
		c, err := w.Catalog(in.Node)
		if err != nil {
			return nil, err
		}
		cmd.Checks = append(cmd.Checks, c)
	}
	return cmd, nil
}
