"""Audio files: scanning, reading, organizing, merging and converting them."""
