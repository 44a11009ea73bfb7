"""Checkpoints in, answers out."""
