"""From text to batches of token ids."""
