"""The simulated provider as a pod."""

from __future__ import annotations

from typing import Any

from support.fakeprovider import ProviderControl, arguments

PORT = 8080


class ProviderPod(ProviderControl):
    """`inside` is where pods reach it, `outside` where tests do; both host and port."""

    def __init__(self, name: str, *, inside: str, outside: str) -> None:
        super().__init__(f"http://{outside}")
        self.name = name
        self.base_url = f"http://{inside}/v1"

    async def paid_twice(self) -> dict[str, int]:
        """Jobs that were billed more than once."""
        return {job: times for job, times in (await self.billed()).items() if times > 1}


def provider_command(**options: Any) -> list[str]:
    """What the pod runs; options are those of `llmqueue fake-provider`."""
    return ["fake-provider", "--host", "0.0.0.0", "--port", str(PORT), *arguments(options)]
