#!/usr/bin/env bash
# The main job: see scripts/run_train.sh, which this is the short name of.
exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/run_train.sh" "$@"
