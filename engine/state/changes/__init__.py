"""Applying operations to a state: a module for each subject, and `apply`, which dispatches to them."""
