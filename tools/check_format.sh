#!/usr/bin/env bash
# Checks that clang-format has nothing to change, in every C++ file of the tree or those given: tools/check_format.sh [FILE...]
# To apply it: clang-format-16 -i FILE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -eq 0 ]; then
  mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- '*.cc' '*.h')
  for file in "${files[@]}"; do
    [ ! -f "$file" ] || set -- "$@" "$file"  # a file may be deleted and not yet committed as such
  done
fi
status=0
for file in "$@"; do
  clang-format-16 --dry-run -Werror --ferror-limit=1 "$file" || status=1
done
echo "format: $# files, $([ $status -eq 0 ] && echo "0 problems" || echo "some to be reformatted")"
exit $status
