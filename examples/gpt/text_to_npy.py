"""Text files as ``text.npy``: one number a letter, its place in the alphabet of ``gpt.tessera``.

python examples/gpt/text_to_npy.py FILES
"""

import sys
from pathlib import Path

import numpy as np

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))


def main(files: list[str]) -> None:
    text = "\n".join(Path(f).read_text(encoding="utf-8") for f in files)
    places = np.array([ALPHABET.index(c) for c in text if c in ALPHABET], np.uint8)
    np.save(Path(__file__).parent / "text.npy", places)
    print(f"text.npy: {len(places)} letters of {len(files)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
