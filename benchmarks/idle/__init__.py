"""What a worker costs that has nothing to do."""
