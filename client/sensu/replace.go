package sensu

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// replaceTries is how often Replace begins anew because somebody else wrote meanwhile.
const replaceTries = 5

// Replace reads an object, has change make another of it, and writes that where the object is still what was read;
// else it begins anew, a few times. A server without ETag, which has no If-Match either, takes what comes last.
func (c *Client) Replace(ctx context.Context, path string, change func(now []byte) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	for range replaceTries {
		now, header, err := c.do(ctx, http.MethodGet, path, nil, nil, "")
		if err != nil {
			return err
		}
		next, err := change(now)
		if err != nil {
			return err
		}
		_, _, err = c.do(ctx, http.MethodPut, path, nil, next, header.Get("ETag"))
		var e *Error
		if !errors.As(err, &e) || e.Status != http.StatusPreconditionFailed {
			return err
		}
	}
	return fmt.Errorf("%s was changed by others %d times meanwhile, and is as they left it: try again", path, replaceTries)
}
