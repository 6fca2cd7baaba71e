"""A photograph that comes with scikit-learn as an array, and arrays as pictures.

python examples/blur/picture_to_npy.py            # picture.npy: [3, height, width] from 0 to 1
python examples/blur/picture_to_npy.py blurred    # blurred.npy as blurred.png
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

FOLDER = Path(__file__).parent


def main(names: list[str]) -> None:
    for name in names:
        x = np.load(FOLDER / f"{name}.npy")
        pixels = (np.clip(x, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(FOLDER / f"{name}.png")
        print(f"{name}.png")
    if not names:
        picture = np.moveaxis(load_sample_image("china.jpg"), -1, 0) / np.float32(255.0)
        np.save(FOLDER / "picture.npy", np.ascontiguousarray(picture))
        print(f"picture.npy: {picture.shape}")


if __name__ == "__main__":
    main(sys.argv[1:])
