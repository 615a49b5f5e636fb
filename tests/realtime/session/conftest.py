"""After every test: no task, thread, socket or timer is left behind, and every frame was one of the protocol."""

import pytest

from tests.helpers.voice_checks import nothing_left_and_every_frame_right

checked = pytest.fixture(autouse=True)(nothing_left_and_every_frame_right)
