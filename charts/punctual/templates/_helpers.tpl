{{- define "punctual.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "punctual.operator" -}}
{{- printf "%s-operator" (include "punctual.fullname" .) -}}
{{- end -}}

{{- /* Cluster-wide objects of two releases with one name must not meet. */ -}}
{{- define "punctual.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "punctual.operator" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "punctual.priorityClass" -}}
{{- .Values.priorityClass.name | default (include "punctual.fullname" .) -}}
{{- end -}}

{{- define "punctual.selector" -}}
app.kubernetes.io/name: punctual-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "punctual.labels" -}}
{{ include "punctual.selector" . }}
app.kubernetes.io/part-of: punctual
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The head of an object's metadata after its name: call with (dict "root" $ "labels" ... "annotations" ...). */ -}}
{{- define "punctual.metadata" -}}
labels:
  {{- include "punctual.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* An image's full name: call with (dict "root" $ "image" ...). */ -}}
{{- define "punctual.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
