"""A service uses as many descriptors as the machine allows."""

from __future__ import annotations

import resource

from strandline.runtime.process import raise_open_file_limit


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """What a shell or a service manager gives by default is not what the process keeps."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        assert raise_open_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
