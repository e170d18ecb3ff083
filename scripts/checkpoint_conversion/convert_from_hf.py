#!/usr/bin/env python3
"""Converts a Hugging Face checkpoint to DCP, in float32 as training starts from it. A short form of `milepost import`.

    convert_from_hf.py HF_DIR DCP_DIR --model_name deepseek_v3 --model_flavor 671B
"""
import launcher


def main(arguments=None):
    parser = launcher.parser(__doc__.splitlines()[0], "HF_DIR DCP_DIR")
    parser.add_argument("--tokenizer_path", "--hf_assets_path", metavar="DIR", help="accepted as on the way back; a DCP folder holds no tokenizer")
    options, folders, rest = launcher.parse(parser, arguments)
    launcher.run_tool("import", *folders, *launcher.model_words(options), *launcher.mtp_words(rest), "--dtype", "float32", *rest)


if __name__ == "__main__":
    main()
