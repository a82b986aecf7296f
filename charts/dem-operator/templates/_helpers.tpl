{{- define "dem.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "dem.selector" -}}
app.kubernetes.io/name: dem-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dem.labels" -}}
{{ include "dem.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "dem.serviceAccount" -}}
{{ if .Values.serviceAccount.create }}{{ default (include "dem.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "dem.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "dem.solverImage" -}}
{{ .Values.solverImage.repository }}:{{ default .Chart.AppVersion .Values.solverImage.tag }}
{{- end }}
