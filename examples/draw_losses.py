"""The losses of a training (``losses.npy`` in a folder) as a drawing, ``losses.svg`` beside it.

python examples/draw_losses.py examples/gpt "mean cross-entropy of a letter, in nats"
"""

import sys
from pathlib import Path

import numpy as np

WIDTH, HEIGHT, EDGE = 720, 360, 48


def main(folder: Path, what: str) -> None:
    losses = np.load(folder / "losses.npy")
    near = 25  # steps whose mean is drawn
    smooth = np.convolve(losses, np.ones(near) / near, "valid") if len(losses) > near else losses
    unit = 10.0 ** np.floor(np.log10(losses.max()))
    top = float(np.ceil(losses.max() / unit)) * unit
    x = EDGE + np.linspace(0.0, WIDTH - 2 * EDGE, len(smooth))
    y = HEIGHT - EDGE - smooth / top * (HEIGHT - 2 * EDGE)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    marks = [
        f'<text x="{EDGE - 8}" y="{HEIGHT - EDGE - n / top * (HEIGHT - 2 * EDGE) + 4:.0f}" '
        f'text-anchor="end">{n:g}</text>'
        for n in np.round(np.arange(0.0, top + unit / 2, unit), 6)
    ]
    middle = f'<text x="{WIDTH // 2}" y="{HEIGHT - 12}" text-anchor="middle">'
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *marks,
        f"{middle}{len(losses)} steps; {what}</text>",
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="2"/>',
        "</svg>",
    ]
    (folder / "losses.svg").write_text("\n".join(svg) + "\n", encoding="utf-8")
    print(f"losses.svg: from {smooth[0]:.3g} to {smooth[-1]:.3g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
