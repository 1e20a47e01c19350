"""Frozen trunk (images to tokens) and trainable tail (tokens to features)."""
