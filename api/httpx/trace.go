package httpx

import "strings"

// TraceID is the id of the trace that a traceparent header names (W3C Trace Context, version 00 and later ones that begin alike), ""
// when there is none or it is malformed.
func TraceID(traceparent string) string {
	parts := strings.SplitN(traceparent, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return ""
	}
	if !isHex(parts[0]) || !isHex(parts[1]) || !isHex(parts[2]) || !isHex(parts[3]) || strings.Trim(parts[1], "0") == "" {
		return ""
	}
	return parts[1]
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
