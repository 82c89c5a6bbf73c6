package hostinfo

import (
	"errors"
	"os/user"
	"strconv"
)

// PostgresUser is a user other than root, as whom a PostgreSQL may be started.
func PostgresUser() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err = strconv.Atoi(u.Uid)
		if err != nil {
			return 0, 0, err
		}
		gid, err = strconv.Atoi(u.Gid)
		return uid, gid, err
	}
	return 0, 0, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
