"""A local page to look through a discover run and correct it."""
