"""A certificate for localhost that nobody vouches for. Its key is no secret: tests only."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIURttO+LK9ePUvgYWn30pvnNiD6iwwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDA3MTYwMFoYDzIxMjYxMTA2
MDcxNjAwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARfVKfhxZ3N2hqmeyB4yD42GztFaTGtLz9cwB/MKAWFfvpybGa4/XVk
QPLAABd+D6YXP9gE3oAij0DKQ2esGSQho28wbTAdBgNVHQ4EFgQU5wfeNffXWXdV
2Lh367xjoU9PY0AwHwYDVR0jBBgwFoAU5wfeNffXWXdV2Lh367xjoU9PY0AwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhALLTMfq66GjS8gsNWQPEVi40Y26gcluUa5U3ovEFCIhyAiAd
+ruJHH+jBMM8YoGlxkq2QJ1AJoCTt/hhkZOa52GPEQ==
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRs4Mi4XfIPGQkQg6
VZrbjCWY4E3pDPB1TAbiUuxd2GOhRANCAARfVKfhxZ3N2hqmeyB4yD42GztFaTGt
Lz9cwB/MKAWFfvpybGa4/XVkQPLAABd+D6YXP9gE3oAij0DKQ2esGSQh
-----END PRIVATE KEY-----
"""


def write_certificate(folder: Path) -> Path:
    """The certificate as a file, for a client that is told to trust it."""
    path = folder / "certificate.pem"
    path.write_text(CERTIFICATE)
    return path


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS for a server on localhost."""
    path = folder / "server.pem"
    path.write_text(_KEY + CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
