"""The S3 server, for the tests of storage."""

from __future__ import annotations

from ..s3 import s3, s3_server

__all__ = ["s3", "s3_server"]
