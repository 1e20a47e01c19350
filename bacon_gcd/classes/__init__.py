"""From features and labels to classes: how many, where, and how sure."""
