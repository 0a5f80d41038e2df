{{/* `helm upgrade --set a=b` forgets all other values, also which Redis the jobs are in. Looked up only
to refuse: what is rendered never depends on it. By labels, since a name may be forgotten with it. */}}
{{- define "llmqueue.neverInPlaceOfAnother" -}}
{{- if .Release.IsUpgrade -}}
{{- $operators := include "llmqueue.count" (list . "operator" "apps/v1" "Deployment") -}}
{{- $trials := include "llmqueue.count" (list . "trial-valkey" "v1" "Service") -}}
{{- if and (gt (int $operators) 0) (eq (int $trials) 0) -}}
{{- fail "this release has a Redis of its own, and these values name none: its jobs would stay there, unseen. Give redis.url or redis.existingSecret again, all values by -f, or upgrade with --reset-then-reuse-values" -}}
{{- end -}}
{{- $volumes := include "llmqueue.count" (list . "trial-valkey" "v1" "PersistentVolumeClaim") -}}
{{- if and (gt (int $volumes) 0) (not .Values.trialValkey.persistence.enabled) -}}
{{- fail "the trial Valkey of this release keeps its jobs in a volume, and these values have none: they would be unseen. Give trialValkey.persistence.enabled=true again, or upgrade with --reset-then-reuse-values; to start anew delete the PersistentVolumeClaim first" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* `include "llmqueue.count" (list . "operator" "apps/v1" "Deployment")`: how many the release has. */}}
{{- define "llmqueue.count" -}}
{{- $root := index . 0 -}}
{{- $selector := include "llmqueue.selector" . | fromYaml -}}
{{- $count := 0 -}}
{{- range (lookup (index . 2) (index . 3) $root.Release.Namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if eq (pick $labels "app.kubernetes.io/name" "app.kubernetes.io/instance" | toYaml) ($selector | toYaml) -}}
{{- $count = add1 $count -}}
{{- end -}}
{{- end -}}
{{- $count -}}
{{- end -}}
