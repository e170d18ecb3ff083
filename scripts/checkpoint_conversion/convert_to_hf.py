#!/usr/bin/env python3
"""Converts a DCP checkpoint to Hugging Face safetensors. A short form of `milepost export`.

    convert_to_hf.py DCP_DIR HF_DIR --hf_assets_path assets/hf/DeepSeek-V3.1-Base --model_name deepseek_v3 --model_flavor 671B
"""
import sys
from pathlib import Path

import launcher

# The assets of the default model; another model's index would not fit it.
DEFAULT_ASSETS = "./assets/hf/Llama-3.1-8B"
DEFAULT_MODEL = ["--model", "llama3", "--flavor", "8B"]


def like_words(assets, model_words):
    """--like for the folder with the original's index and tokenizer, if there is one."""
    if assets is None:
        assets = DEFAULT_ASSETS
        if model_words != DEFAULT_MODEL or not Path(assets).is_dir():
            return []
    if not Path(assets).is_dir():
        print(f"Note: there is no folder {assets}, so the files are split by size and no tokenizer is copied", file=sys.stderr)
        return []
    return ["--like", assets]


def main(arguments=None):
    parser = launcher.parser(__doc__.splitlines()[0], "DCP_DIR HF_DIR")
    parser.add_argument("--hf_assets_path", "--tokenizer_path", metavar="DIR",
                        help=f"the original model's folder: its index and tokenizer, if it is there [llama3 8B: {DEFAULT_ASSETS}]")
    parser.add_argument("--export_dtype", choices=("float32", "float16", "bfloat16"), default="float32", help="[%(default)s]")
    parser.add_argument("--read_threads", type=int, metavar="N", help="the tool's --threads")
    parser.add_argument("--ema_output", metavar="DIR", help="write the moving averages of the weights here, too")
    parser.add_argument("--ema_key", metavar="COPY", help="which of several averages, such as decay_0p999")
    options, folders, rest = launcher.parse(parser, arguments)
    if options.ema_key is not None and options.ema_output is None:
        parser.error("--ema_key says which averages --ema_output gets")
    model = launcher.model_words(options)
    threads = [] if options.read_threads is None else ["--threads", str(options.read_threads)]
    like = like_words(options.hf_assets_path, model)
    words = [*model, *launcher.mtp_words(rest), "--dtype", options.export_dtype, *like, *threads, *rest]
    if options.ema_output is None:
        launcher.run_tool("export", *folders, *words)
    launcher.run_tool_first("export", *folders, *words)
    if not launcher.holds_average(folders[0]):
        print(f"Warning: {folders[0]} holds no moving averages of weights, so --ema_output is skipped", file=sys.stderr)
        return
    key = [] if options.ema_key is None else ["--ema-key", options.ema_key]
    launcher.run_tool("export", folders[0], options.ema_output, "--ema", *key, *words)


if __name__ == "__main__":
    main()
