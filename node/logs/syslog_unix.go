//go:build unix

package logs

import (
	"fmt"
	"io"
	"log/syslog"
	"strings"
)

// openSyslog opens this host's syslog.
func openSyslog(facility string) (io.Writer, error) {
	known, ok := facilities[strings.ToUpper(facility)]
	if !ok {
		return nil, fmt.Errorf("syslog_facility: %q is none of the names of syslog(3), such as LOCAL0 or DAEMON", facility)
	}
	w, err := syslog.New(syslog.LOG_INFO|known, "consul")
	if err != nil {
		return nil, fmt.Errorf("enable_syslog: %w", err)
	}
	return w, nil
}

var facilities = map[string]syslog.Priority{
	"KERN": syslog.LOG_KERN, "USER": syslog.LOG_USER, "MAIL": syslog.LOG_MAIL, "DAEMON": syslog.LOG_DAEMON,
	"AUTH": syslog.LOG_AUTH, "SYSLOG": syslog.LOG_SYSLOG, "LPR": syslog.LOG_LPR, "NEWS": syslog.LOG_NEWS,
	"UUCP": syslog.LOG_UUCP, "CRON": syslog.LOG_CRON, "AUTHPRIV": syslog.LOG_AUTHPRIV, "FTP": syslog.LOG_FTP,
	"LOCAL0": syslog.LOG_LOCAL0, "LOCAL1": syslog.LOG_LOCAL1, "LOCAL2": syslog.LOG_LOCAL2, "LOCAL3": syslog.LOG_LOCAL3,
	"LOCAL4": syslog.LOG_LOCAL4, "LOCAL5": syslog.LOG_LOCAL5, "LOCAL6": syslog.LOG_LOCAL6, "LOCAL7": syslog.LOG_LOCAL7,
}
