"""The practitioner's API: a folder of images sorted into known and new classes."""
