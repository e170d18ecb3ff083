#!/usr/bin/env bash
# Sets everything up, builds the `milepost` tool and shows what it does on the small real checkpoint under examples/.
# Everything it writes lies in outputs/quickstart, which each run starts afresh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

scripts/setup.sh
scripts/build.sh release milepost
tool=build/release/cli/milepost
checkpoint=examples/dsv3_debug_step-3
out=outputs/quickstart
rm -rf "$out"
mkdir -p "$out"

# Prints a command, then runs it.
show() {
  echo
  echo "\$ milepost $*"
  "$tool" "$@"
}
say() {
  echo
  echo "== $*"
}

say "What is in it?"
show inspect "$checkpoint"
show inspect "$checkpoint" --value train_state.step
show inspect "$checkpoint" --match 'layers.1.attention.*' --stats

say "Is it sound?"
show verify "$checkpoint"

say "Its tensors as safetensors, and back. Numbers, dicts and the data loader's state have no place in safetensors; --skip-unsupported says so and drops them."
show convert "$checkpoint" "$out/safetensors" --to safetensors --skip-unsupported
show convert "$out/safetensors" "$out/dcp_again" --to dcp
show diff "$checkpoint" "$out/dcp_again" --match 'layers.*'

say "As one file that torch.load(weights_only=True) opens, with everything in it"
show convert "$checkpoint" "$out/step-3.pth" --to torch
show diff "$checkpoint" "$out/step-3.pth"

say "Laid out for 4 ranks instead of 1"
show reshard "$checkpoint" "$out/four_ranks" --ranks 4
show verify "$out/four_ranks"
show diff "$checkpoint" "$out/four_ranks"

cat <<END

== What next
Your own checkpoint:   $tool inspect PATH         (a DCP folder, a Hugging Face folder, a .safetensors or a .pth file)
All commands:          $tool --help, and $tool COMMAND --help for an example of each
The tests:             ./run_tests.sh
How it is built:       ARCHITECTURE.md
The outputs above are in $out.
END
