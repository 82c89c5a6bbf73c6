{{- define "corbel.name" -}}
{{- if contains "corbel" .Release.Name }}{{ .Release.Name | trunc 50 }}{{ else }}{{ printf "%s-corbel" .Release.Name | trunc 50 }}{{ end -}}
{{- end }}

{{- define "corbel.labels" -}}
app.kubernetes.io/name: corbel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What selects pods is never changed: a StatefulSet refuses that. */ -}}
{{- define "corbel.selector" -}}
app.kubernetes.io/name: corbel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "corbel.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "corbel.tlsSecret" -}}
{{- if eq .Values.tls.from "secret" }}{{ .Values.tls.existingSecret }}{{ else }}{{ include "corbel.name" . }}-tls{{ end -}}
{{- end }}

{{- define "corbel.gossipSecret" -}}
{{ .Values.gossip.existingSecret | default (printf "%s-gossip" (include "corbel.name" .)) }}
{{- end }}

{{- define "corbel.aclSecret" -}}
{{ .Values.acl.existingSecret | default (printf "%s-acl" (include "corbel.name" .)) }}
{{- end }}

{{- define "corbel.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "corbel.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The address of the pod, which need be no private one. */ -}}
{{- define "corbel.env" -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- /* The agent of the pod itself says whether clients may come. */ -}}
{{- define "corbel.probes" -}}
startupProbe:
  exec: {command: [/usr/bin/corbel, info, --ready]}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 720
readinessProbe:
  exec: {command: [/usr/bin/corbel, info, --ready]}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "corbel.join" -}}
{{- $name := include "corbel.name" . -}}
{{- range $i := until (int .Values.server.replicas) }}
- {{ $name }}-server-{{ $i }}.{{ $name }}-server.{{ $.Release.Namespace }}.svc
{{- end }}
{{- end }}
