"""Programs that measure llmqueue on the machine at hand; see README.md."""
