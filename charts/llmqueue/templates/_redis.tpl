{{/* Whether the trial Valkey runs; refuses what can't be meant. */}}
{{- define "llmqueue.trial" -}}
{{- $redis := .Values.redis -}}
{{- if and $redis.url $redis.existingSecret -}}
{{- fail "redis.url and redis.existingSecret both name the connection 'default': give one of them" -}}
{{- end -}}
{{- if hasKey $redis.connections "default" -}}
{{- fail "redis.connections holds further connections: the one named 'default' is redis.url or redis.existingSecret" -}}
{{- end -}}
{{- if $redis.url -}}
{{- include "llmqueue.verifiedUrl" $redis.url -}}
{{- else if not $redis.existingSecret -}}
{{- if not .Values.trialValkey.enabled -}}
{{- fail "no Redis: give redis.url (without a password) or redis.existingSecret (a Secret with the key 'url'). Only for trying out: trialValkey.enabled=true" -}}
{{- end -}}
{{- include "llmqueue.neverInPlaceOfAnother" . -}}
true
{{- end -}}
{{- end -}}

{{/* Nothing, or a refusal that does not repeat the URL: it may hold a password. */}}
{{- define "llmqueue.verifiedUrl" -}}
{{- if or (contains "@" .) (regexMatch "[?&](sentinel_)?(username|password)=" .) -}}
{{- fail "redis.url holds a user or a password, which would be readable in the release and in the workers' pods: put the URL into a Secret under the key 'url' and name it in redis.existingSecret" -}}
{{- end -}}
{{- if not (regexMatch "^rediss?(\\+sentinel|\\+cluster)?://[^/?]" .) -}}
{{- fail "redis.url must be like redis://host:6379/0, rediss://host:6379/0, redis+sentinel://host:26379/primary or redis+cluster://host:6379" -}}
{{- end -}}
{{- end -}}

{{- define "llmqueue.trialUrl" -}}
redis://{{ include "llmqueue.named" (list . "trial-valkey") }}.{{ .Release.Namespace }}.svc:6379/0
{{- end -}}

{{/* Name -> what is mounted for it, as YAML: {default: {configMap: {name: …}}, other: {secret: …}} */}}
{{- define "llmqueue.connections" -}}
{{- $found := dict -}}
{{- if .Values.redis.existingSecret -}}
{{- $_ := set $found "default" (dict "secret" (dict "secretName" .Values.redis.existingSecret)) -}}
{{- else -}}
{{- $_ := set $found "default" (dict "configMap" (dict "name" (include "llmqueue.named" (list . "connection")))) -}}
{{- end -}}
{{- range $name, $connection := .Values.redis.connections -}}
{{- $_ := set $found $name (dict "secret" (dict "secretName" $connection.existingSecret)) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Volumes and mounts of all connections. */}}
{{- define "llmqueue.connectionVolumes" -}}
{{- range $name, $source := include "llmqueue.connections" . | fromYaml }}
- name: {{ include "llmqueue.short" (printf "connection-%s" $name) }}
  {{- toYaml $source | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "llmqueue.connectionMounts" -}}
{{- range $name, $source := include "llmqueue.connections" . | fromYaml }}
- name: {{ include "llmqueue.short" (printf "connection-%s" $name) }}
  mountPath: /etc/llmqueue/connections/{{ $name }}
  readOnly: true
{{- end }}
{{- end -}}
