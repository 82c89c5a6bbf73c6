package envoy

import (
	"encoding/json"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	streamlogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
)

// logFields is what a line holds unless a format is given.
var logFields = map[string]string{
	"start_time": "%START_TIME%", "route_name": "%ROUTE_NAME%", "method": "%REQ(:METHOD)%",
	"path":     "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
	"protocol": "%PROTOCOL%", "response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%",
	"response_code_details":          "%RESPONSE_CODE_DETAILS%",
	"connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%", "bytes_received": "%BYTES_RECEIVED%",
	"bytes_sent": "%BYTES_SENT%",
	"duration":   "%DURATION%", "upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
	"x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
	"user_agent":      "%REQ(USER-AGENT)%", "request_id": "%REQ(X-REQUEST-ID)%", "authority": "%REQ(:AUTHORITY)%",
	"upstream_host":    "%UPSTREAM_HOST%",
	"upstream_cluster": "%UPSTREAM_CLUSTER%", "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
	"downstream_local_address":  "%DOWNSTREAM_LOCAL_ADDRESS%",
	"downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%", "requested_server_name": "%REQUESTED_SERVER_NAME%",
	"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
}

// listenerLogs are the lines about connections that no filter chain took.
func (p *packer) listenerLogs(v *entry.AccessLogs) []*logv3.AccessLog {
	if v == nil || v.DisableListenerLogs {
		return nil
	}
	return p.logs(v, true)
}

// logs are what is written of each connection or request; nothing unless it is asked for.
func (p *packer) logs(v *entry.AccessLogs, listener bool) []*logv3.AccessLog {
	if v == nil || !v.Enabled {
		return nil
	}
	format := p.logFormat(v)
	out := &logv3.AccessLog{Name: "Consul Listener Log"}
	if !listener {
		out.Name = "Consul"
	} else {
		out.Filter = &logv3.AccessLogFilter{
			FilterSpecifier: &logv3.AccessLogFilter_ResponseFlagFilter{
				ResponseFlagFilter: &logv3.ResponseFlagFilter{Flags: []string{"NR"}},
			},
		}
	}
	var m message
	switch v.Type {
	case "file":
		m = &filelogv3.FileAccessLog{Path: v.Path, AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format}}
	case "stderr":
		m = &streamlogv3.StderrAccessLog{AccessLogFormat: &streamlogv3.StderrAccessLog_LogFormat{LogFormat: format}}
	default:
		m = &streamlogv3.StdoutAccessLog{AccessLogFormat: &streamlogv3.StdoutAccessLog_LogFormat{LogFormat: format}}
	}
	out.ConfigType = &logv3.AccessLog_TypedConfig{TypedConfig: p.any(m)}
	return []*logv3.AccessLog{out}
}

func (p *packer) logFormat(v *entry.AccessLogs) *corev3.SubstitutionFormatString {
	if v.TextFormat != "" {
		text := v.TextFormat
		if text[len(text)-1] != '\n' {
			text += "\n"
		}
		return &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inline(text)},
		}
	}
	fields := map[string]any{}
	for name, value := range logFields {
		fields[name] = value
	}
	if v.JSONFormat != "" {
		clear(fields)
		if err := json.Unmarshal([]byte(v.JSONFormat), &fields); err != nil {
			p.keep(errkind.Errorf(errkind.Invalid, "AccessLogs.JSONFormat: %w", err))
		}
	}
	object, err := structpb.NewStruct(fields)
	p.keep(err)
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: object}}
}
