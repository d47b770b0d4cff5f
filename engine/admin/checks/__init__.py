"""What `engine.admin.verify` looks at, one module for each kind of thing. Nothing here writes to a root."""
