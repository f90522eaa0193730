"""Random declarations, and what they are written as."""

from __future__ import annotations

from hypothesis import strategies as st

from fjord.declared import schema
from fjord.declared.declaration import MODELS, Declaration, Index, plain, scalar
from fjord.declared.schema import TYPES, Column

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)
COLUMN_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: schema.name_problem(name) is None
)
COLUMNS = st.builds(Column, COLUMN_NAMES, st.sampled_from(list(TYPES)), st.booleans())
# Text for people: anything that XML has a character for.
TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r")
)
WORDS = TEXTS.map(plain).filter(lambda text: text == "" or scalar(text) == text)
VALUES = (
    st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(-1e15, 1e15, allow_subnormal=False)
    | WORDS
)


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    """Returns any table that a file can declare, whether or not its settings make sense."""
    model = draw(st.sampled_from(list(MODELS)))
    may = MODELS[model]
    columns = draw(st.lists(COLUMNS, unique_by=lambda one: one.name.lower(), max_size=8))
    able = [one.name for one in columns if one.required and one.kind.can_be_key]
    key = tuple(draw(st.permutations(able)))[: draw(st.integers(0, 3))] if may.key else ()
    indexes = [Index(name) for name in draw(st.permutations(may.indexes))]
    names_columns = draw(st.booleans())
    if key and names_columns:
        indexes = [Index("key", key) if one.name == "key" else one for one in indexes]
    return Declaration(
        name=draw(NAMES),
        model=model,
        columns=tuple(columns) if may.columns else (),
        key=key,
        indexes=tuple(indexes[: draw(st.integers(0, 2))]),
        settings=draw(st.dictionaries(WORDS.filter(bool), VALUES, max_size=5)),
        description=plain(draw(TEXTS)),
    )


MANY = st.lists(declarations(), unique_by=lambda one: one.name, max_size=5)
