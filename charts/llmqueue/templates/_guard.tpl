{{/* `helm upgrade --set a=b` forgets all other values, also which Redis the jobs are in. Looked up only
to refuse: what is rendered never depends on it. */}}
{{- define "llmqueue.neverInPlaceOfAnother" -}}
{{- $trial := include "llmqueue.named" (list . "trial-valkey") -}}
{{- $operator := include "llmqueue.named" (list . "operator") -}}
{{- if and .Release.IsUpgrade (lookup "apps/v1" "Deployment" .Release.Namespace $operator) -}}
{{- if not (lookup "v1" "Service" .Release.Namespace $trial) -}}
{{- fail "this release has a Redis of its own, and these values name none: its jobs would stay there, unseen. Give redis.url or redis.existingSecret again, all values by -f, or upgrade with --reset-then-reuse-values" -}}
{{- end -}}
{{- end -}}
{{- end -}}
