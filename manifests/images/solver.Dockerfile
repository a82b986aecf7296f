# Open MPI of the Debian release that dem-solver was built against, and dem-solver.
ARG BASE=debian:bookworm-slim
FROM $BASE
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openmpi-bin >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY dem-solver /usr/local/bin/
USER 65532:65532
CMD ["dem-solver", "--help"]
