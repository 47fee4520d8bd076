"""The shapes that other libraries want of pumphouse, one module each; nothing here imports them."""
