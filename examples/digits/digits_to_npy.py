"""The 1797 handwritten digits that come with scikit-learn, as arrays beside this file.

python examples/digits/digits_to_npy.py
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    folder = Path(__file__).parent
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    np.save(folder / "images.npy", (images[order] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8))
    np.save(folder / "labels.npy", labels[order].astype(np.int32))
    print(f"images.npy, labels.npy: {len(labels)} digits of 8 x 8")


if __name__ == "__main__":
    main()
