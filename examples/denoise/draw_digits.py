"""Digits, with noise and without it (``shown.npy``) as a picture, ``shown.png``.

python examples/denoise/draw_digits.py
"""

from pathlib import Path

import numpy as np
from PIL import Image


def main() -> None:
    folder = Path(__file__).parent
    x = np.load(folder / "shown.npy").reshape(3, 12, 8, 8)
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=1.0)
    rows = x.transpose(0, 2, 1, 3).reshape(30, 120)
    pixels = (255.0 - np.clip(rows, 0.0, 1.0) * 255.0).astype(np.uint8)
    Image.fromarray(np.kron(pixels, np.ones((6, 6), np.uint8))).save(folder / "shown.png")
    print("shown.png: digits, the same with noise, and what the net makes of these")


if __name__ == "__main__":
    main()
