"""Streams on a root, in layers: model, reading, writing, the stream itself, maintenance. Beside them `pravega_lts`."""
