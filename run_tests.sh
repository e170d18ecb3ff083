#!/usr/bin/env bash
# Sets up, builds and runs the tests. Options go to ctest: ./run_tests.sh -L unit, ./run_tests.sh -R cli -V
#
#   ./run_tests.sh --without-torch [CTEST OPTION...]   leaves out torch and the tests that need it (labels interop and titan)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

setup_option=--with-torch
if [ "${1:-}" = --without-torch ]; then
  setup_option=--with-tests
  shift
fi
scripts/setup.sh "$setup_option"
scripts/build.sh dev
exec ctest --test-dir build/dev --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
