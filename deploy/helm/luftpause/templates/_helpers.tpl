{{- define "luftpause.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough that the name of a pod and the number of its worker, which name a dataplane, have at most 64 characters. */}}
{{- define "luftpause.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 32 | trimSuffix "-" -}}
{{- else if contains (include "luftpause.name" .) .Release.Name -}}
{{- .Release.Name | trunc 32 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "luftpause.name" .) | trunc 32 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Takes a dict of `root` and `part`; these select pods, so they never change. */}}
{{- define "luftpause.selector" -}}
app.kubernetes.io/name: {{ include "luftpause.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "luftpause.labels" -}}
{{ include "luftpause.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "luftpause.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "luftpause.tokenSecret" -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingSecret }}
{{- else if or .Values.auth.token .Values.auth.clusterToken -}}
{{ include "luftpause.fullname" . }}-tokens
{{- end -}}
{{- end -}}

{{/* Names under which a service is reached in the cluster; takes a dict of `root` and `service`. ${POD_IP} is filled in by luftpause. */}}
{{- define "luftpause.hosts" -}}
- 127.0.0.1
- localhost
- ${POD_IP}
- {{ .service }}
- {{ .service }}.{{ .root.Release.Namespace }}
- {{ .service }}.{{ .root.Release.Namespace }}.svc
- {{ .service }}.{{ .root.Release.Namespace }}.svc.cluster.local
{{- range .root.Values.allowedHosts }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "luftpause.ownConfig" -}}
{{- $name := include "luftpause.fullname" . -}}
scheduler:
  host: 0.0.0.0
  allowed_hosts:
    {{- include "luftpause.hosts" (dict "root" . "service" (printf "%s-scheduler" $name)) | nindent 4 }}
dataplane:
  host: 0.0.0.0
  scheduler: {{ $name }}-scheduler:5000
  hold_keepalive_s: {{ .Values.dataplane.holdKeepaliveSeconds }}
  stop_grace_seconds: {{ .Values.dataplane.stopGraceSeconds }}
  allowed_hosts:
    {{- include "luftpause.hosts" (dict "root" . "service" (printf "%s-dataplane" $name)) | nindent 4 }}
    {{- with .Values.ingress.dataplaneHost }}
    - {{ . | quote }}
    {{- end }}
runtime:
  host: 0.0.0.0
  dataplane: http://{{ $name }}-dataplane:8080
  state: /var/lib/luftpause/state
  allowed_hosts:
    {{- include "luftpause.hosts" (dict "root" . "service" (printf "%s-runtime" $name)) | nindent 4 }}
    {{- range .Values.runtime.names }}
    - {{ $name }}-runtime-{{ . }}
    - {{ $name }}-runtime-{{ . }}.{{ $.Release.Namespace }}
    - {{ $name }}-runtime-{{ . }}.{{ $.Release.Namespace }}.svc
    - {{ $name }}-runtime-{{ . }}.{{ $.Release.Namespace }}.svc.cluster.local
    {{- end }}
    {{- with .Values.ingress.runtimeHost }}
    - {{ . | quote }}
    {{- end }}
auth:
  {{- if .Values.auth.tlsSecret }}
  tls_cert: /etc/luftpause-tls/tls.crt
  tls_key: /etc/luftpause-tls/tls.key
  tls_ca: /etc/luftpause-tls/ca.crt
  {{- else }}
  insecure: true
  {{- end }}
  {{- if .Values.auth.tokensSecret }}
  tokens_file: /etc/luftpause-callers/tokens.yaml
  {{- end }}
{{- if .Values.redisSecret.name }}
governor:
  store: ${REDIS_URL}
{{- else if .Values.valkey.enabled }}
governor:
  store: redis://{{ $name }}-valkey:6379/0
{{- end }}
{{- end -}}

{{- define "luftpause.config" -}}
{{- range $section, $keys := dict "scheduler" (list "host" "grpc_port" "http_port") "dataplane" (list "host" "port") "runtime" (list "host" "port") -}}
{{- range $keys -}}
{{- if hasKey (get $.Values.config $section | default dict) . -}}
{{- fail (printf "config.%s.%s: Services and probes of the chart rely on its own; leave it out" $section .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite (fromYaml (include "luftpause.ownConfig" .)) (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* Changes when the pods must be started anew: with everything but `replicas`, which is read again while they run. */}}
{{- define "luftpause.checksum" -}}
{{- omit (fromYaml (include "luftpause.config" .)) "replicas" | toJson | sha256sum -}}
{{- end -}}

{{/* How a Prometheus finds the pod, where it may read the page without a token. Takes a dict of `root` and `port`. */}}
{{- define "luftpause.scrape" -}}
{{- $open := or (not (include "luftpause.tokenSecret" .root)) (dig "auth" "metrics_open" false .root.Values.config) -}}
{{- if and .root.Values.metrics.annotations $open -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end -}}
{{- end -}}

{{- define "luftpause.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "luftpause.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "luftpause.env" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- if .Values.redisSecret.name }}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redisSecret.name }}, key: {{ .Values.redisSecret.key }}}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "luftpause.envFrom" -}}
{{- with include "luftpause.tokenSecret" . }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- with .Values.envFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "luftpause.mounts" -}}
- {name: config, mountPath: /etc/luftpause, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.auth.tlsSecret }}
- {name: tls, mountPath: /etc/luftpause-tls, readOnly: true}
{{- end }}
{{- if .Values.auth.tokensSecret }}
- {name: callers, mountPath: /etc/luftpause-callers, readOnly: true}
{{- end }}
{{- end -}}

{{- define "luftpause.volumes" -}}
- name: config
  configMap: {name: {{ include "luftpause.fullname" . }}}
- name: tmp
  emptyDir: {}
{{- if .Values.auth.tlsSecret }}
- name: tls
  secret: {secretName: {{ .Values.auth.tlsSecret }}, defaultMode: 0440}
{{- end }}
{{- if .Values.auth.tokensSecret }}
- name: callers
  secret: {secretName: {{ .Values.auth.tokensSecret }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Probes go to the pod's address; the Host header names one that luftpause serves. Takes a dict of `port` and `ready`. */}}
{{- define "luftpause.probes" -}}
startupProbe:
  httpGet: {path: /health, port: {{ .port }}, httpHeaders: [{name: Host, value: localhost}]}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /health, port: {{ .port }}, httpHeaders: [{name: Host, value: localhost}]}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: {{ .ready }}, port: {{ .port }}, httpHeaders: [{name: Host, value: localhost}]}
  periodSeconds: 3
  timeoutSeconds: 3
{{- end -}}

{{- define "luftpause.placing" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the pods of all three have in common. */}}
{{- define "luftpause.pod" -}}
serviceAccountName: {{ include "luftpause.fullname" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "luftpause.podSecurity" . | nindent 2 }}
{{- end -}}
