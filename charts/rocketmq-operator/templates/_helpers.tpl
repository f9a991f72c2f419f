{{- define "rocketmq-operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rocketmq-operator.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "rocketmq-operator.name" .) -}}
{{- end -}}

{{- define "rocketmq-operator.selector" -}}
app.kubernetes.io/name: rocketmq-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rocketmq-operator.labels" -}}
{{ include "rocketmq-operator.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* What the operator may do where it watches. Every verb is one that it uses. */ -}}
{{- define "rocketmq-operator.rules" -}}
- apiGroups: [rocketmq.rs]
  resources: [rocketmqclusters]
  # patch: annotations that ask for something, once it is done
  verbs: [get, list, watch, patch]
- apiGroups: [rocketmq.rs]
  resources: [topics, consumergroups]
  # patch: the finalizer
  verbs: [get, list, watch, patch]
- apiGroups: [rocketmq.rs]
  resources: [rocketmqclusters/status, topics/status, consumergroups/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  # delete: replacing pods one at a time; patch: the label of the master
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  # patch: enlarging
  verbs: [list, watch, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  # The record of each group with slaves. Its brokers get all of these but create, each for its own
  # group's, and nobody can give what he has not.
  verbs: [get, list, watch, create, update]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [list, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [list, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
