"""Histograms of oriented gradients, pixel by pixel."""

import math

import numpy as np

SIDE, CELL, DIRECTIONS, BLOCK, MOST, FAINT = 32, 8, 9, 2, 0.2, 1e-3


def edge_histograms(gray):
    """(values,) of one (32, 32) gray image."""
    n_cells = SIDE // CELL
    cells = np.zeros((n_cells, n_cells, DIRECTIONS))
    for y in range(SIDE):
        for x in range(SIDE):
            across = gray[y, x + 1] - gray[y, x - 1] if 0 < x < SIDE - 1 else 0.0
            down = gray[y + 1, x] - gray[y - 1, x] if 0 < y < SIDE - 1 else 0.0
            turn = math.atan2(down, across) % math.pi / math.pi * DIRECTIONS
            lower, share = int(turn) % DIRECTIONS, turn - int(turn)
            strength = math.hypot(across, down)
            cells[y // CELL, x // CELL, lower] += strength * (1 - share)
            cells[y // CELL, x // CELL, (lower + 1) % DIRECTIONS] += strength * share
    found = []
    for y in range(n_cells - BLOCK + 1):
        for x in range(n_cells - BLOCK + 1):
            # Directions first, then the cells of the block: the order is free, but must not change.
            block = cells[y : y + BLOCK, x : x + BLOCK].transpose(2, 0, 1).ravel()
            found.append(np.minimum(block / (np.linalg.norm(block) + FAINT), MOST))
    return np.concatenate(found)
