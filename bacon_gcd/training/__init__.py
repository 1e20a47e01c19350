"""From a method and token sources to a trained method."""
