"""Reading segments and tables of a container."""
