"""What Strict durability costs, beside Standard."""
