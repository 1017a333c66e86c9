{{/*
What an addon's chart includes; docs/writing-an-addon.md has an example. Each takes the addon's root context, and its
values below `addonSigner`:

  addonSigner:
    image: registry.example.com/addon-signer-agent:0.1.0
    cluster: north                   # the managed cluster's name on the hub
    addon: telemetry
    signer: example.com/telemetry
    gateway: https://gateway.hub.example.com:8443
    workload: deployment/telemetry-agent   # owns the Secret, so that it goes with it
    hubKubeconfig: telemetry-hub-kubeconfig # the Secret with the identity on the hub [ADDON-hub-kubeconfig]
    onRenew: ""                      # a command to run after each change; the image must have it
    openshift: false                 # true: the SCC chooses the user
    args: []                         # further flags

The files are readable for their owner alone, so the program that reads them runs as the same user, 65532. The pod needs
`fsGroup: 65532`, or the agent cannot read the kubeconfig. There may be one pod: two agents would replace each other's
key.
*/}}

{{/* The values, or what to do about those that are missing. */}}
{{- define "addon-signer-agent.values" -}}
{{- $agent := required "set addonSigner in the values" .Values.addonSigner -}}
{{- range list "image" "cluster" "addon" "signer" "gateway" "workload" -}}
{{- if not (index $agent .) -}}{{- fail (printf "set addonSigner.%s" .) -}}{{- end -}}
{{- end -}}
{{- if not (regexMatch "^(deployment|daemonset|statefulset|serviceaccount)/[a-z0-9.-]+$" $agent.workload) -}}
{{- fail "addonSigner.workload must be deployment/NAME, daemonset/NAME, statefulset/NAME or serviceaccount/NAME" -}}
{{- end -}}
{{- if not (hasPrefix "https://" $agent.gateway) -}}
{{- fail "addonSigner.gateway must be https://HOST[:PORT], with an IPv6 address in brackets" -}}
{{- end -}}
{{- toJson $agent -}}
{{- end -}}

{{/* The sidecar, an item of `initContainers`: the pod's other containers start when there is a certificate. */}}
{{- define "addon-signer-agent.container" -}}
{{- $agent := include "addon-signer-agent.values" . | fromJson -}}
- name: signer
  image: {{ $agent.image | quote }}
  restartPolicy: Always
  args:
    - --cluster={{ $agent.cluster }}
    - --addon={{ $agent.addon }}
    - --signer={{ $agent.signer }}
    - --gateway={{ $agent.gateway }}
    - --hub-kubeconfig=/managed/hub-kubeconfig/kubeconfig
    - --secret-namespace={{ .Release.Namespace }}
    - --output-dir=/certificates
    - --owner={{ $agent.workload }}
    - --metrics-listen=[::]:9090
    {{- with $agent.onRenew }}
    - {{ printf "--on-renew=%s" . | quote }}
    {{- end }}
    {{- range $agent.args }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - { name: signer-metrics, containerPort: 9090 }
  # A restart would lose the key of a CSR that waits for its approval, so it has a day.
  startupProbe:
    httpGet: { path: /readyz, port: 9090 }
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 86400
  readinessProbe:
    httpGet: { path: /readyz, port: 9090 }
    timeoutSeconds: 5
  resources:
    requests: { cpu: 5m, memory: 16Mi }
    limits: { cpu: 100m, memory: 32Mi }
  volumeMounts:
    - { name: addon-signer-hub-kubeconfig, mountPath: /managed/hub-kubeconfig, readOnly: true }
    - { name: addon-signer-certificates, mountPath: /certificates }
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
    runAsNonRoot: true
    {{- if not $agent.openshift }}
    runAsUser: 65532
    runAsGroup: 65532
    {{- end }}
    seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* Items of `volumes`. The files are in memory: `addon-signer-certificates` is what the program mounts, read-only. */}}
{{- define "addon-signer-agent.volumes" -}}
{{- $agent := include "addon-signer-agent.values" . | fromJson -}}
- name: addon-signer-certificates
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: addon-signer-hub-kubeconfig
  secret:
    secretName: {{ $agent.hubKubeconfig | default (printf "%s-hub-kubeconfig" $agent.addon) }}
    defaultMode: 288 # 0440
{{- end -}}

{{/* Items of the `rules` of a Role for the pod's account, in the addon's namespace. */}}
{{- define "addon-signer-agent.rules" -}}
{{- $agent := include "addon-signer-agent.values" . | fromJson -}}
{{- $owner := splitn "/" 2 $agent.workload -}}
# Kubernetes cannot limit `create` by name. It overwrites nothing that exists.
- { apiGroups: [""], resources: [secrets], verbs: [create] }
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ $agent.addon }}-client-cert]
  verbs: [get, list, watch, update]
- apiGroups: [{{ ternary `""` "apps" (eq $owner._0 "serviceaccount") }}]
  resources: [{{ $owner._0 }}s]
  resourceNames: [{{ $owner._1 }}]
  verbs: [get]
{{- end -}}

{{/*
Items of the `egress` of a NetworkPolicy for the pod: where a policy lets nothing else out, the pod still reaches the
gateway. If it reaches the hub through a proxy, add that.
*/}}
{{- define "addon-signer-agent.egress" -}}
{{- $agent := include "addon-signer-agent.values" . | fromJson -}}
{{- $address := urlParse $agent.gateway -}}
{{- $port := regexFind ":[0-9]+$" $address.host | trimPrefix ":" | default "443" -}}
- ports:
    - { port: {{ $port }}, protocol: TCP }
- ports: # DNS, also that of OpenShift, and the API servers
    {{- range list 53 5353 }}
    - { port: {{ . }}, protocol: UDP }
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
    - { port: 443, protocol: TCP }
    - { port: 6443, protocol: TCP }
{{- end -}}
