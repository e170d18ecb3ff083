#!/usr/bin/env bash
# Runs clang-tidy with the repository's .clang-tidy over its sources (tests apart), or over those given: tools/run_clang_tidy.sh [FILE...]
# Builds nothing; a configured build/dev gives the compile commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -eq 0 ]; then
  mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- 'src/*.cc' 'cli/*.cc' ':!*_test.cc')
  for file in "${files[@]}"; do
    [ ! -f "$file" ] || set -- "$@" "$file"
  done
fi
[ -f build/dev/compile_commands.json ] || scripts/build.sh dev help >/dev/null
# One process a core; xargs exits with 123 when any of them found something.
printf '%s\0' "$@" | xargs -0 -n 4 -P "$(nproc)" clang-tidy-16 -p build/dev --quiet
echo "clang-tidy: $# files, 0 problems"
