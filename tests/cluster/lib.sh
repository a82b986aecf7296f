# Shared by the scripts in this folder; sourced, never run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=versions.env
source "$here/versions.env"
cache=${CLUSTER_CACHE:-${HOME:-/root}/.cache/dem-operator-cluster}
bin=$cache/bin
mkdir -p "$bin"
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }
root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }

# The first Go that is new enough for Kubernetes' modules: on the PATH, in Go's usual
# place, or the one that tests/setup put into the cache.
go_is_new() { [[ -x $1/go ]] && GOTOOLCHAIN=local "$1/go" version 2>/dev/null | awk '{split(substr($3, 3), v, "."); exit !(v[1] > 1 || v[2] >= 26)}'; }
for d in "$(dirname "$(command -v go || echo /nowhere/go)")" /usr/local/go/bin "$cache/go/bin"; do
  if go_is_new "$d"; then export PATH="$d:$PATH"; go_found=$d; break; fi
done
need_go() { [[ -n ${go_found:-} ]] || die "Go 1.26 or newer is needed: run tests/setup test"; }
export PATH="$bin:$PATH"

# One builder at a time per cache: a second one waits instead of racing. Re-entrant for nested scripts.
lock() {
  [[ ${CLUSTER_LOCKED:-} != "$cache" ]] || return 0
  exec 9>"$cache/lock"; flock 9; export CLUSTER_LOCKED=$cache
}
# Images are built on this machine unless CLUSTER_IMAGES=pull says that a registry can be reached.
pull() { [[ ${CLUSTER_IMAGES:-build} == pull ]]; }
