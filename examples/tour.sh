#!/usr/bin/env bash
# A tour of the `milepost` tool: sets everything up (no torch), builds it and shows what it does on the small real checkpoint in this folder.
# Everything it writes lies in outputs/tour, which each run starts afresh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh release milepost
tool=build/release/cli/milepost
checkpoint=examples/dsv3_debug_step-3
model='{tok_embeddings,layers,norm,lm_head}.*' # the model's own tensors, without optimizer and trainer state
out=outputs/tour
rm -rf "$out"
mkdir -p "$out"

say() {
  echo
  echo "== $*"
}
# Prints a command as one would type it, then runs it.
show() {
  local word line='$ milepost'
  for word in "$@"; do
    case "$word" in
      *[*{}]*) line+=" '$word'" ;;
      *) line+=" $word" ;;
    esac
  done
  echo
  echo "$line"
  "$tool" "$@"
}

say "What is in it?"
show inspect "$checkpoint" --match "$model"
show inspect "$checkpoint" --value train_state.step
show inspect "$checkpoint" --value dataloader.dp_rank_0
show inspect "$checkpoint" --match 'layers.1.attention.wq.*' --stats

say "Is it sound?"
show verify "$checkpoint"

say "The model as safetensors, and back to DCP"
show convert "$checkpoint" "$out/safetensors" --to safetensors --match "$model"
show convert "$out/safetensors" "$out/dcp_again" --to dcp
show diff "$checkpoint" "$out/dcp_again" --match "$model"

say "The same in bfloat16: half the size, equal within its precision"
show convert "$checkpoint" "$out/bfloat16" --to safetensors --dtype bfloat16 --match "$model"
show diff "$checkpoint" "$out/bfloat16" --match "$model" --rtol 0.004

say "Everything, optimizer and data loader too, in one file for torch.load(weights_only=True)"
show convert "$checkpoint" "$out/step-3.pth" --to torch
show diff "$checkpoint" "$out/step-3.pth"

say "Laid out for 4 ranks instead of 1"
show reshard "$checkpoint" "$out/four_ranks" --ranks 4
show inspect "$out/four_ranks" --match tok_embeddings.weight --chunks
show verify "$out/four_ranks"
show diff "$checkpoint" "$out/four_ranks"

say "A model in Hugging Face's names, quantised to fp8, into a checkpoint to train from, and back as bfloat16"
show synth deepseek_v3 "$out/hf_fp8" --fp8
show import "$out/hf_fp8" "$out/dcp_model"
show export "$out/dcp_model" "$out/hf_bfloat16"

cat <<END

== What next
Your own checkpoint:  $tool inspect PATH    (a DCP folder, a safetensors file or folder, a torch.save file)
Convert models:       docs/conversion.md
All commands:         $tool --help, and $tool COMMAND --help for examples; docs/cli.md has it all
The tests:            ./run_tests.sh
How it works:         ARCHITECTURE.md
What was written above lies in $out.
END
