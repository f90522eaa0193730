"""Values and keys as text and as JSON, as people and commands read them.

JSON has no word for some of them: bytes, and text that is no Unicode, are {"base64": "..."}; the
floats that are no numbers are the strings "nan", "inf" and "-inf"; dates are in RFC 3339.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fjord.values import RowType, Type


def value_text(value: Any) -> str:
    """Returns a value, or a row, as text."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return json.dumps(json_value(value), allow_nan=False, ensure_ascii=False)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_name(value: Any) -> str:
    return _TYPE_NAMES[type(value)]


def json_value(what: object) -> object:
    """Returns the same with nothing in it that JSON has no word for."""
    if isinstance(what, Mapping):
        return {key: json_value(one) for key, one in what.items()}
    if isinstance(what, list | tuple):
        return [json_value(one) for one in what]
    if isinstance(what, str):
        return what if _is_unicode(what) else _base64(what.encode("utf-8", "surrogateescape"))
    if isinstance(what, float) and not math.isfinite(what):
        return str(what)
    if isinstance(what, datetime):
        return what.isoformat()
    return _base64(what) if isinstance(what, bytes) else what


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


def _is_unicode(text: str) -> bool:
    """Says whether text is free of the lone surrogates that stand for other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(text: str) -> str:
    """Returns text in which all that cannot be printed is written out."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def key_text(key: str | bytes) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key


_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): Type.VOID.name.lower(),
    bytes: Type.BUFFER.name.lower(),
    str: Type.STRING.name.lower(),
    int: Type.INTEGER.name.lower(),
    float: Type.FLOAT.name.lower(),
    bool: Type.BOOLEAN.name.lower(),
    dict: RowType.ROW.name.lower(),
}
