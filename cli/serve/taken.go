package serve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/kit/sockets"
)

// named names the process that has the port which a start wanted.
func named(err error) error {
	var op *net.OpError
	if !neterr.InUse(err) || !errors.As(err, &op) || op.Addr == nil {
		return err
	}
	at, parseErr := netip.ParseAddrPort(op.Addr.String())
	if parseErr != nil {
		return err
	}
	if h, found := sockets.HolderOf(op.Net, at); found {
		return fmt.Errorf("%w: process %d (%s) has it; end that, or choose other ports (--port-offset)", err, h.PID, h.Name)
	}
	return fmt.Errorf("%w: end what has it (`ss -lptun` as root names it), or choose other ports (--port-offset)", err)
}
