#!/usr/bin/env bash
# Configures and builds one preset into build/PRESET: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift

# Objects compiled in another checkout of the same sources are as good.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

log=build/configure-$preset.log
mkdir -p build
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
grep '^-- Milepost:' "$log" || true
targets=()
for target in "$@"; do
  targets+=(--target "$target")
done
cmake --build --preset "$preset" "${targets[@]}"
