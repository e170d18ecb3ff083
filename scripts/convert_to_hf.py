#!/usr/bin/env python3
"""checkpoint_conversion/convert_to_hf.py under the path that older guides name: --ckpt_path DIR --output_path DIR --flavor NAME."""
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "checkpoint_conversion"

if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    runpy.run_path(str(FOLDER / "convert_to_hf.py"), run_name="__main__")
