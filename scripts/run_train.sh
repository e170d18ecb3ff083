#!/usr/bin/env bash
# Trains: sets up and builds on first use (seconds when nothing changed), then starts one process for each of NGPU.
#
#   ./run_train.sh                                                  the default job, on the bundled data
#   NGPU=2 ./run_train.sh --training.steps 20 --checkpoint.enable   flags as in TorchTitan
#   MODULE=llama3 CONFIG=llama3_debugmodel ./run_train.sh --help
#
# Environment, as in TorchTitan's launcher:
#   NGPU            processes on this machine (default 1)
#   LOG_RANK        whose output is shown: 0 (default), or 0,1
#   MODULE, CONFIG  what is trained (default deepseek_v3, deepseek_v3_debugmodel; with --config-file: what the file names);
#                   MODULE may be a dotted path, such as torchtitan.models.deepseek_v3
#   HF_ASSETS_PATH  folder of the tokenizer, where --hf-assets-path is not given
#   COMM_MODE       fake_backend or local_tensor: one process, one step, nothing sent; checks a configuration for NGPU processes (--training.steps 0: plans it)
#   TRAIN_FILE      accepted; there is one program
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

NGPU=${NGPU:-1}
COMM_MODE=${COMM_MODE:-}
export LOG_RANK=${LOG_RANK:-0}

"$root/scripts/setup.sh" --with-train
"$root/scripts/build.sh" release milepost-train >"$root/build/build-train.log" 2>&1 || { cat "$root/build/build-train.log" >&2; exit 1; }
program=$root/build/release/train/milepost-train
# Bundled tokenizers and data are found from any folder.
export MILEPOST_ROOT=${MILEPOST_ROOT:-$root}

if [ -n "${TRAIN_FILE:-}" ]; then
  echo "run_train.sh: TRAIN_FILE=$TRAIN_FILE is not used: $program is the one program" >&2
fi

# A file may name module and entry; defaults from here would outrank it.
case " $* " in
  *" --config-file"* | *" --config_file"*) ;;
  *) MODULE=${MODULE:-deepseek_v3} CONFIG=${CONFIG:-deepseek_v3_debugmodel} ;;
esac
arguments=(${MODULE:+--module "$MODULE"} ${CONFIG:+--config "$CONFIG"})
if [ -n "${HF_ASSETS_PATH:-}" ]; then
  case " $* " in
    *" --hf-assets-path"* | *" --hf_assets_path"*) ;;
    *) arguments+=(--hf-assets-path "$HF_ASSETS_PATH") ;;
  esac
fi

# Prints a command as it is run.
run() {
  printf '+' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  exec "$@"
}

# What only prints needs no processes.
for argument in "$@"; do
  case "$argument" in
    -h | --help | --list-configs) exec "$program" "${arguments[@]}" "$@" ;;
  esac
done

if [ -n "$COMM_MODE" ]; then
  echo "Running with comm_mode=$COMM_MODE"
  export NGPU LOCAL_RANK=0
  # Before the user's flags, since the last one counts: --training.steps 0 plans.
  run "$program" "${arguments[@]}" "--comm.mode=$COMM_MODE" --training.steps 1 "$@"
fi

if ! [[ $NGPU =~ ^[1-9][0-9]*$ ]]; then
  echo "run_train.sh: NGPU=$NGPU is not the number of processes; give an integer from 1" >&2
  exit 2
fi

# So that a signal by which a job is asked to save and stop reaches the processes.
export TORCHELASTIC_SIGNALS_TO_HANDLE=${TORCHELASTIC_SIGNALS_TO_HANDLE:-SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1}
export PYTORCH_ALLOC_CONF=${PYTORCH_ALLOC_CONF:-expandable_segments:True}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + NGPU - 1) / NGPU))}
run "$root/.venv/bin/python" -m torch.distributed.run --nproc_per_node="$NGPU" --rdzv_backend c10d --rdzv_endpoint=localhost:0 \
  --local-ranks-filter "$LOG_RANK" --role rank --tee 3 --no-python "$program" "${arguments[@]}" "$@"
