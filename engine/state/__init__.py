"""A container's state as an immutable value, and the operations that change it. No input or output."""
