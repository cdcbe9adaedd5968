"""Lines of a run's own files. A number that is not finite stands there as text ("nan", "inf"), because JSON has none."""
import json
import math
from typing import Any, Dict, Optional, Union

NOT_FINITE = {"nan": math.nan, "-nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def row_of(line: Union[str, bytes]) -> Optional[Dict[str, Any]]:
    """None for a line that is none of ours: half written, or put there by another program."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    for name, value in row.items():
        if isinstance(value, str) and value in NOT_FINITE:
            row[name] = NOT_FINITE[value]
    return row
