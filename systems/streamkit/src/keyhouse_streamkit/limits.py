"""Limits of Streamkit, each with its unit and origin."""

from typing import Final

LIST_BYTES_MAX: Final = 8 * 1_024 * 1_024
"""Configs in one response to a list, unless the first alone is larger. The cursor leads to the
rest."""

LISTS_AT_ONCE_MAX: Final = 4
"""Lists of one customer built at the same time, each in memory. Others wait."""

BATCH_OPERATIONS_MAX: Final = 100
"""Operations in one `:batch`: each may write a row, and DynamoDB commits 100."""

IMPORT_AHEAD_SECONDS_MAX: Final = 24 * 3_600
"""Tolerance for times in the future in an imported file: clocks differ."""

SCENE_NAME_CHARS_MAX: Final = 200
"""The name of a scene."""

TOP_SCENES_MAX: Final = 100
"""Scenes in one response to `GET /scene-activity/top`."""

READABLE_ROWS_MAX: Final = 1_000
"""Rows of a customer that are known to be readable, so that a GET need not decode them."""
