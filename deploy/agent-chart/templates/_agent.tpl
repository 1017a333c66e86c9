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
    args: []                         # further flags
*/}}

{{/* The sidecar, an item of `initContainers`: the pod's other containers start when there is a certificate. */}}
{{- define "addon-signer-agent.container" -}}
{{- $agent := required "set addonSigner in the values" .Values.addonSigner -}}
- name: signer
  image: {{ required "set addonSigner.image" $agent.image }}
  restartPolicy: Always
  args:
    - --cluster={{ required "set addonSigner.cluster" $agent.cluster }}
    - --addon={{ required "set addonSigner.addon" $agent.addon }}
    - --signer={{ required "set addonSigner.signer" $agent.signer }}
    - --gateway={{ required "set addonSigner.gateway" $agent.gateway }}
    - --hub-kubeconfig=/managed/hub-kubeconfig/kubeconfig
    - --secret-namespace={{ .Release.Namespace }}
    - --output-dir=/certificates
    - --owner={{ required "set addonSigner.workload" $agent.workload }}
    - --metrics-listen=0.0.0.0:9090
    {{- with $agent.onRenew }}
    - {{ printf "--on-renew=%s" . | quote }}
    {{- end }}
    {{- range $agent.args }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - { name: signer-metrics, containerPort: 9090 }
  # A restart would lose the key of a request that waits for its approval, so it has a day.
  startupProbe:
    httpGet: { path: /readyz, port: 9090 }
    periodSeconds: 1
    failureThreshold: 86400
  readinessProbe:
    httpGet: { path: /readyz, port: 9090 }
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
    # The files are readable for their owner alone, so the program that reads them must be this user too.
    runAsNonRoot: true
    runAsUser: 65532
{{- end -}}

{{/* Items of `volumes`. The files are in memory: `addon-signer-certificates` is what the program mounts, read-only. */}}
{{- define "addon-signer-agent.volumes" -}}
- name: addon-signer-certificates
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: addon-signer-hub-kubeconfig
  secret:
    secretName: {{ .Values.addonSigner.hubKubeconfig | default (printf "%s-hub-kubeconfig" .Values.addonSigner.addon) }}
    defaultMode: 288 # 0440
{{- end -}}

{{/* Items of the `rules` of a Role for the pod's account, in the addon's namespace. */}}
{{- define "addon-signer-agent.rules" -}}
{{- $owner := splitn "/" 2 .Values.addonSigner.workload -}}
# Kubernetes cannot limit `create` by name. It overwrites nothing that exists.
- { apiGroups: [""], resources: [secrets], verbs: [create] }
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .Values.addonSigner.addon }}-client-cert]
  verbs: [get, list, watch, update]
- apiGroups: [{{ ternary `""` "apps" (eq $owner._0 "serviceaccount") }}]
  resources: [{{ $owner._0 }}s]
  resourceNames: [{{ $owner._1 }}]
  verbs: [get]
{{- end -}}

{{/*
Items of the `egress` of a NetworkPolicy for the pod: where OCM's own policies let nothing out (they allow DNS and the
ports 443 and 6443), the pod still reaches the gateway.
*/}}
{{- define "addon-signer-agent.egress" -}}
{{- $address := urlParse .Values.addonSigner.gateway -}}
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
