package monitor

// The annotations by which a check drives the health of what the catalog knows.
const (
	// CatalogService names the service, or one instance by its ID, whose instances on the entity's node have the check's
	// status.
	CatalogService = "corbel.dev/catalog-service"
	// CatalogNode set to "node" gives the status to the entity's node, and so to all its services.
	CatalogNode = "corbel.dev/catalog"
)

// Binding says what of the catalog has a check's status. Its zero value is nothing.
type Binding struct {
	Service string // a service or an instance's ID; "" is none
	Node    bool
	// Stray is a keepalive: it speaks for a node of which no gossip tells whether it lives.
	Stray bool
}

// Empty reports whether nothing of the catalog can depend on the check.
func (b Binding) Empty() bool { return b == Binding{} }

func bindingOf(c *Check) Binding {
	return Binding{Service: c.Annotations[CatalogService], Node: c.Annotations[CatalogNode] == "node",
		Stray: c.Name == KeepaliveCheck}
}
