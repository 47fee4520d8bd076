"""The shapes that other libraries want of pumphouse, a module for each; nothing here imports them."""
