"""Segments made of chunks."""
