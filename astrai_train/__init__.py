"""Stores in, checkpoints out."""
