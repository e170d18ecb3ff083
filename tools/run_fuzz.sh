#!/usr/bin/env bash
# Builds the libFuzzer targets and runs each for a while, with the test fixtures as corpus: tools/run_fuzz.sh [SECONDS] [TARGET...]
# Default: 60 seconds for every target. What is found lies in build/fuzz/findings/TARGET; exits with 1 then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift

scripts/setup.sh --with-fuzz
if [ $# -eq 0 ]; then
  for source in fuzz/*_fuzz.cc; do
    set -- "$@" "$(basename "$source" .cc)"
  done
fi

scripts/build.sh fuzz "$@"

# The fixtures that a target starts from, told by what it parses.
seeds_of() {
  case "$1" in
    *safetensors*) find tests/data -name '*.safetensors' ;;
    *index*) find tests/data -name '*.index.json' ;;
    *metadata*) find tests/data -name '.metadata' -o -name '__*.metadata' ;;
    *zip*) find tests/data -name '*.distcp' -size -100k -o -name '*.pt' -o -name '*.pth' ;;
    *pickle*) find tests/data -name '.metadata' -o -name '*.pt' ;;
    *) find tests/data -type f -size -100k ;;
  esac
}

status=0
for target in "$@"; do
  corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target seeds=build/fuzz/seeds/$target
  rm -rf "$seeds"
  mkdir -p "$corpus" "$findings" "$seeds"
  count=0
  while IFS= read -r file; do
    cp "$file" "$seeds/seed-$((count += 1))"
  done < <(seeds_of "$target")
  echo
  echo "=== $target: $seconds s, $count seeds"
  log=build/fuzz/$target.log
  if build/fuzz/fuzz/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=300000 -print_final_stats=1 \
      -artifact_prefix="$findings/" "$corpus" "$seeds" >"$log" 2>&1; then
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$log"
  else
    status=1
    tail -40 "$log"
    echo "=== $target FAILED; the input lies in $findings"
  fi
done
exit $status
