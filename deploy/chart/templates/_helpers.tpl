{{/*
Names are fixed, not made from the release's: there is one addon-signer on a hub, its cluster-scoped objects cannot be
there twice, and policies and people know its accounts by name.
*/}}

{{/* Labels of an object: (dict "root" $ "component" "hub"). */}}
{{- define "addon-signer.labels" -}}
app.kubernetes.io/name: addon-signer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* By what a pod is found. It cannot be changed in an existing Deployment, so it has no release and no version. */}}
{{- define "addon-signer.selector" -}}
app.kubernetes.io/name: addon-signer
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Where the gateway runs: in the hub's pod, or in pods of its own. */}}
{{- define "addon-signer.gateway-component" -}}
{{ ternary "gateway" "hub" .Values.gateway.separate }}
{{- end -}}

{{- define "addon-signer.image" -}}
{{- $image := .Values.image -}}
{{- /* A repository with a host has its registry already. */}}
{{- if and $image.registry (not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image.repository)) }}{{ $image.registry }}/{{ end }}
{{- $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* The hub's account. */}}
{{- define "addon-signer.subject" -}}
kind: ServiceAccount
name: addon-signer
namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Arguments that signer and gateway must share. */}}
{{- define "addon-signer.shared-args" -}}
{{- /* Agents of every AddOnSigner may use the first one: an agent's, if there is one. */}}
{{- range .Values.gateway.names }}
- {{ printf "--gateway-name=%s" . | quote }}
{{- end }}
- --gateway-name=addon-signer-gateway.$(ADDON_SIGNER_NAMESPACE).svc
{{- range .Values.gateway.backendAddresses }}
- {{ printf "--backend-addresses=%s" . | quote }}
{{- end }}
- {{ printf "--metrics-listen=%s:9090" .Values.listenAddress | quote }}
{{- end -}}

{{/* What every pod has: (dict "root" $ "component" "hub" "pod" .Values.signer). */}}
{{- define "addon-signer.pod" -}}
automountServiceAccountToken: true
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* Without a selector a constraint counts no pods. */}}
{{- $selector := dict "matchLabels" (include "addon-signer.selector" . | fromYaml) }}
{{- $apart := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
topologySpreadConstraints:
{{- range .pod.topologySpreadConstraints | default (list $apart) }}
  - {{ toYaml (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) | nindent 4 | trim }}
{{- end }}
{{- end -}}

{{- define "addon-signer.container" -}}
image: {{ include "addon-signer.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
resources: {{- toYaml .pod.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
livenessProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5 # a machine that is short of CPU is not short of gateways as well
{{- end -}}

{{/* OpenShift's SCC restricted-v2 chooses a user and a group of its own, and refuses others. */}}
{{- define "addon-signer.user" -}}
runAsNonRoot: true
{{- if not .Values.openshift }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* Combinations that cannot work. The schema refuses the rest. */}}
{{- define "addon-signer.check" -}}
{{- if has .Release.Namespace (list "default" "kube-system") }}
{{- fail (printf "the keys of all authorities are Secrets in the release's namespace, and %s is not only addon-signer's: install with --namespace addon-signer" .Release.Namespace) }}
{{- end }}
{{- if and (gt (int .Values.signer.replicas) 1) (not .Values.gateway.separate) }}
{{- fail "signer.replicas: a second signer needs gateway.separate: true, because a waiting hub serves no gateway and never becomes ready" }}
{{- end }}
{{- if and (gt (int .Values.signer.replicas) 1) (not .Values.ledger.postgres.enabled) }}
{{- fail "signer.replicas: a second signer needs ledger.postgres.enabled: true, because two cannot share a ledger in a file" }}
{{- end }}
{{- if and .Values.ledger.file.ephemeral (or .Values.ledger.postgres.enabled .Values.ledger.file.existingClaim) }}
{{- fail "ledger.file.ephemeral: the ledger is in PostgreSQL or in a volume of yours; choose one" }}
{{- end }}
{{- if .Values.servingRoots.configMap }}
{{- if not (hasPrefix "addon-signer-" .Values.servingRoots.configMap) }}
{{- fail "servingRoots.configMap: begin the name with addon-signer-: only who may write the Secrets of the authorities writes such ConfigMaps" }}
{{- end }}
{{- if not (contains "--serving-trust Root" (join " " .Values.signer.args | replace "=" " ")) }}
{{- fail "servingRoots.configMap: the hub uses it only with --serving-trust=Root in signer.args, and does not start without" }}
{{- end }}
{{- end }}
{{- range .Values.gateway.args }}
{{- if hasPrefix "--shutdown-delay" . }}
{{- fail "gateway.args: --shutdown-delay is set by gateway.shutdownDelaySeconds, together with the grace period" }}
{{- end }}
{{- end }}
{{- range $part := list "signer" "gateway" }}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/component" }}
{{- if hasKey (index $.Values $part "podLabels") $label }}
{{- fail (printf "%s.podLabels: %s is the chart's own, by which pods are found" $part $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- $service := .Values.gateway.service }}
{{- if and $service.nodePort (eq $service.type "ClusterIP") }}
{{- fail "gateway.service.nodePort: a Service of type ClusterIP has none; set gateway.service.type" }}
{{- end }}
{{- if and (or $service.loadBalancerClass $service.loadBalancerSourceRanges) (ne $service.type "LoadBalancer") }}
{{- fail "gateway.service.loadBalancer…: these need gateway.service.type: LoadBalancer" }}
{{- end }}
{{- range .Values.signers }}
{{- $domain := splitList "/" .name | first }}
{{- if or (eq $domain "addon-signer.io") (regexMatch "(^|\\.)(kubernetes|k8s)\\.io$" $domain) }}
{{- fail (printf "signers: %s is reserved; begin the name with a domain of your own" .name) }}
{{- end }}
{{- end }}
{{- $dns := include "addon-signer.dns-names" . | fromJsonArray }}
{{- range $way := list "ingress" "openshiftRoute" "tlsRoute" }}
{{- if and (index $.Values.gateway $way "enabled") (not $dns) }}
{{- fail (printf "gateway.%s forwards by the DNS name in the TLS handshake: put one into gateway.names" $way) }}
{{- end }}
{{- end }}
{{- if and .Values.gateway.openshiftRoute.enabled (gt (len $dns) 1) }}
{{- fail "gateway.openshiftRoute has one host: leave one DNS name in gateway.names" }}
{{- end }}
{{- end -}}

{{/* The DNS names in gateway.names, as JSON; the others are addresses. */}}
{{- define "addon-signer.dns-names" -}}
{{- $names := list -}}
{{- range .Values.gateway.names -}}
{{- if not (or (contains ":" .) (regexMatch "^[0-9.]+$" .)) -}}{{- $names = append $names . -}}{{- end -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}
