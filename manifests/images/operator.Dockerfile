# The operator's three programs. dem-agent is static: an init container copies it into a job's pods,
# whatever their image. BASE is only the C library for the other two.
ARG BASE=debian:bookworm-slim
FROM $BASE
COPY dem-operator kubectl-dem dem-agent /
USER 65532:65532
ENTRYPOINT ["/dem-operator"]
