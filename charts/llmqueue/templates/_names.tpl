{{/* The release and the chart, or what stands for them; a name of its own for each release. */}}
{{- define "llmqueue.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- include "llmqueue.short" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* `include "llmqueue.named" (list . "operator")`: the fullname with a suffix. */}}
{{- define "llmqueue.named" -}}
{{- $fullname := include "llmqueue.fullname" (index . 0) -}}
{{- include "llmqueue.short" (printf "%s-%s" $fullname (index . 1)) -}}
{{- end -}}

{{/* 63 characters at most. Only cut off, long names would meet: a digest keeps them apart. */}}
{{- define "llmqueue.short" -}}
{{- if le (len .) 63 -}}
{{- . -}}
{{- else -}}
{{- printf "%s-%s" (trunc 54 . | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* `include "llmqueue.selector" (list . "operator")`: what tells a component's pods from others. */}}
{{- define "llmqueue.selector" -}}
app.kubernetes.io/name: {{ printf "llmqueue-%s" (index . 1) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- end -}}

{{/* Of every object. Not of pod templates: a new chart alone must restart nothing. */}}
{{- define "llmqueue.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "llmqueue.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: llmqueue
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}

{{/* `include "llmqueue.labelsWith" (list . "rules" .Values.rules.labels)`: the values' go before. */}}
{{- define "llmqueue.labelsWith" -}}
{{- merge dict (index . 2 | default dict) (include "llmqueue.labels" . | fromYaml) | toYaml -}}
{{- end -}}

{{- define "llmqueue.serviceAccount" -}}
{{- $account := .Values.serviceAccount -}}
{{- if $account.create -}}
{{- default (include "llmqueue.named" (list . "operator")) $account.name -}}
{{- else -}}
{{- required "serviceAccount.create is false: name the ServiceAccount to use in serviceAccount.name" $account.name -}}
{{- end -}}
{{- end -}}
