"""How long each script keeps the server from others, and what a waiting job costs in memory."""
