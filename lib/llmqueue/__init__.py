"""What all llmqueue processes share: jobs, limits, providers and the store."""

from importlib.metadata import version

__version__ = version("llmqueue")
