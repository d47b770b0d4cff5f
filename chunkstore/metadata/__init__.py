"""Records of segments and chunks, how they are written, and transactions over them."""
