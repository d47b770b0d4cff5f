"""The checks of `engine.admin.verify`, one module for each subject. Nothing here writes to a root."""
