"""Reading the segments and tables of a container."""
