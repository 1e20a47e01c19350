"""Images in: one table, one split, seeded views, batches."""
