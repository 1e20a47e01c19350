"""The researcher's API: runs with ground truth, scored."""
