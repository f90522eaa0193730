"""The journal table in a mysqldump."""

from __future__ import annotations

import itertools
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.errors import FjordError
from fjord.sql import dump, shape
from fjord.sql.dump import Bad, CutShortError, Dump
from fjord.sql.shape import Found
from tests.unit.sql.reading import bytewise, endless, whole

CREATE: Final = b"""\
CREATE TABLE `journal` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `domain` text NOT NULL,
  `priority` smallint(6) NOT NULL,
  `key_start_date` bigint(20) NOT NULL,
  `uri` text NOT NULL COMMENT 'a, (b) `c`',
  `status` bigint(20) DEFAULT NULL,
  `next_processing` bigint(20) GENERATED ALWAYS AS (if(`status`,`status`,`key_start_date`)) VIRTUAL,
  PRIMARY KEY (`id`),
  KEY `journal_uri` (`uri`(256)) USING BTREE COMMENT 'used to delete duplicates'
) ENGINE=InnoDB;
"""
LISTED: Final = (
    b"INSERT INTO `journal` (`id`, `domain`, `priority`, `key_start_date`, `uri`, `status`)"
)
ROW: Final = b"(1,'d',5,1700000000000000,'u',NULL)"
CELLS: Final[list[shape.Cell]] = [b"d", 5, 1_700_000_000_000_000, b"u", None]


def read(text: bytes, table: str = "", **options: tuple[str, ...]) -> list[Found | Bad]:
    found = list(Dump(whole(text), table=table, **options).rows())
    assert found == list(Dump(bytewise(text), table=table, **options).rows())
    return found


@pytest.mark.req("FJ-17")
def test_rows_with_a_list_of_columns_are_found() -> None:
    text = CREATE + LISTED + b" VALUES " + ROW + b",\n" + ROW + b";\n"
    assert read(text) == [Found(12, CELLS), Found(13, CELLS)]


def test_without_any_columns_the_table_must_be_named() -> None:
    text = b"INSERT INTO journal VALUES " + ROW + b";"
    assert read(text) == []
    assert read(text, "journal") == [Found(1, CELLS)]
    generated = text.replace(b"NULL)", b"NULL,1700000000000000),(1),(1,2,3,4,5,6,7,8)")
    assert read(generated, "journal") == [
        Found(1, CELLS),
        Bad(1, "it has 1 values for 6 columns"),
        Bad(1, "it has 8 values for 6 columns"),
    ]


@pytest.mark.parametrize(
    "begin",
    [
        *(b"insert into journal", b"INSERT IGNORE INTO `journal`"),
        *(b"INSERT LOW_PRIORITY INTO journal", b"REPLACE INTO `journal`"),
        *(b"INSERT INTO `snaplist`.`journal`", b"INSERT INTO snaplist.journal"),
        *(b'INSERT INTO "journal"', b"INSERT /* now */ INTO journal"),
    ],
)
def test_any_insert_is_one(begin: bytes) -> None:
    listed = b"(uri, status, priority, domain, key_start_date)"
    text = begin + listed + b" VALUES ('u', NULL, 5, 'd', 1700000000000000);"
    assert read(text) == [Found(1, CELLS)]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        *((b"NULL", None), (b"null", None), (b"7", 7), (b"-7", -7), (b"- 7", -7), (b"+7", 7)),
        *((b"'it''s'", b"it's"), (rb"'a\\b\n'", b"a\\b\n"), (b'"a"', b"a"), (b"0x6162", b"ab")),
        *((b"X'6162'", b"ab"), (b"_binary 'ab'", b"ab"), (b"_utf8mb4'ab'", b"ab")),
        *((b"_binary 0x6162", b"ab"), (b"N'ab'", b"ab"), (b"TRUE", 1), (b"false", 0)),
        *((b" /* c */ 7 /* d */ ", 7), (b"-- c\n7\n", 7), (b"''", b"")),
    ],
)
def test_values_are_read(value: bytes, cell: shape.Cell) -> None:
    text = LISTED + b" VALUES (1,%b,5,6,'u',NULL);" % value
    (found,) = read(text)
    assert isinstance(found, Found)
    assert found.cells == [cell, 5, 6, b"u", None]


@pytest.mark.parametrize(
    "value",
    [
        *(b"NOW()", b"1.5", b"1e-5", b"'a' 'b'", b"CONCAT('a', ',', (2))", b"DEFAULT", b"`name`"),
        *(b"0x6", b"X'zz'", b"_latin1'a'", b"b'1'", b"- 'a'", b"?", b"1" * 21),
    ],
)
def test_what_is_no_plain_value_is_odd_and_the_rest_is_read(value: bytes) -> None:
    text = LISTED + b" VALUES (1,%b,5,6,'u',NULL),%b;" % (value, ROW)
    first, second = read(text)
    assert isinstance(first, Found)
    assert isinstance(first.cells[0], shape.Odd)
    assert first.cells[1:] == [5, 6, b"u", None]
    assert second == Found(text.count(b"\n") + 1, CELLS)


def test_what_is_no_row_ends_its_statement_only() -> None:
    text = LISTED + b" VALUES (1,2;\n" + LISTED + b" VALUES x;\n" + LISTED + b" VALUES" + ROW + b";"
    first, second, third = read(text)
    assert first == Bad(1, "it has no end; the rest of its statement is skipped")
    assert second == Bad(2, "this is not a row; the rest of its statement is skipped")
    assert third == Found(3, CELLS)


def test_what_follows_the_rows_is_passed_over() -> None:
    text = LISTED + b" VALUES " + ROW + b" ON DUPLICATE KEY UPDATE uri = ';';\n"
    text += LISTED + b" SELECT 1;\n" + LISTED + b" VALUES " + ROW + b";"
    assert read(text) == [
        Found(1, CELLS),
        Bad(2, "an INSERT without VALUES is not supported"),
        Found(3, CELLS),
    ]


def test_other_tables_and_statements_are_passed_over() -> None:
    text = b"""\
/*M!999999\\- enable the sandbox mode */
-- MariaDB dump
/*!40101 SET NAMES utf8mb4 */;
DROP TABLE IF EXISTS `pages`;
CREATE TABLE `pages` (`id` int, `uri` text);
INSERT INTO `pages` VALUES (1,'it''s; INSERT INTO `journal`'),(2,'b');
/*!50001 CREATE VIEW `v` AS SELECT 1 */;
CREATE TABLE `copy` LIKE `journal`;
CREATE TABLE;
INSERT INTO;
DELIMITER ;;
/*!50003 CREATE TRIGGER t BEFORE INSERT ON pages FOR EACH ROW BEGIN
  INSERT INTO journal (domain, priority, key_start_date, uri, status) VALUES (1, 2, 3, 4, 5);
  INSERT INTO journal (domain, priority, key_start_date, uri, status) VALUES (1, 2, 3, 4, 5);
END */;;
DELIMITER ;
USE `snaplist`;
LOCK TABLES `journal` WRITE;
/*!40000 ALTER TABLE `journal` DISABLE KEYS */;
"""
    text += LISTED + b" VALUES " + ROW + b";\nUNLOCK TABLES;\n-- Dump completed"
    found = Dump(whole(text))
    assert list(found.rows()) == [Found(20, CELLS)]
    assert found.table == "snaplist.journal"


def test_the_first_table_with_the_columns_is_read_and_others_are_told() -> None:
    other = LISTED.replace(b"journal", b"old")
    text = LISTED + b" VALUES " + ROW + b";" + other + b" VALUES " + ROW + b";"
    found = Dump(whole(text))
    assert list(found.rows()) == [Found(1, CELLS)]
    assert (found.table, found.others) == ("journal", {"old"})
    named = Dump(whole(text), table="old")
    assert (list(named.rows()), named.table) == ([Found(1, CELLS)], "old")


def test_a_named_table_without_the_columns_is_an_error() -> None:
    with pytest.raises(FjordError, match="table pages has no column domain, priority"):
        read(b"INSERT INTO pages (id, uri) VALUES (1, 'a');", "pages")


def test_backslashes_are_letters_where_the_mode_says_so() -> None:
    text = b"/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_BACKSLASH_ESCAPES' */;\n"
    text += LISTED + rb" VALUES (1,'a\',5,6,'u\n',NULL);" + b"\n"
    text += b"/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;\n"
    text += LISTED + rb" VALUES (1,'a\'',5,6,'u\n',NULL);" + b"\n"
    text += b"SET standard_conforming_strings = on;\n"
    text += LISTED + rb" VALUES (1,'a\',5,6,'u\n',NULL);"
    assert read(text) == [
        Found(2, [b"a\\", 5, 6, b"u\\n", None]),
        Found(4, [b"a'", 5, 6, b"u\n", None]),
        Found(6, [b"a\\", 5, 6, b"u\\n", None]),
    ]


def test_another_character_set_is_an_error_that_says_what_to_do() -> None:
    text = b"/*!40101 SET NAMES latin1 */;" + LISTED + b" VALUES " + ROW + b";"
    with pytest.raises(FjordError, match="in latin1; make it with --default-character-set=utf8mb4"):
        read(text)


def test_copy_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(FjordError, match="pg_dump --inserts"):
        read(b"COPY public.journal (id) FROM stdin;\n1\n\\.\n")


def test_lines_for_the_client_of_postgresql_are_passed_over() -> None:
    rows = LISTED + b" VALUES " + ROW + b";"
    assert read(b"\\restrict it's\n" + rows + b"\n\\unrestrict it's\n") == [Found(2, CELLS)]


def test_a_byte_order_mark_is_passed_over_and_utf_16_is_told() -> None:
    text = LISTED + b" VALUES " + ROW + b";"
    assert read(b"\xef\xbb\xbf" + text) == [Found(1, CELLS)]
    with pytest.raises(FjordError, match=r"UTF-16.*--result-file"):
        read(text.decode().encode("utf-16"))


# -- hostile --------------------------------------------------------------------------------------


def test_a_dump_that_is_cut_anywhere_gives_whole_rows_and_an_error() -> None:
    whole_text = CREATE + LISTED + b" VALUES " + ROW + b"," + ROW + b";"
    complete = {len(CREATE) - 1, len(CREATE)}
    for size in set(range(1, len(whole_text))) - complete:
        found: list[Found | Bad] = []
        with pytest.raises(CutShortError, match="cut short"):
            found.extend(Dump(whole(whole_text[:size])).rows())
        assert [one for one in found if one != Found(12, CELLS)] == []


def test_a_value_that_is_too_long_is_told_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "TOKEN_BYTES_MAX", dump.READ_BYTES)
    long = itertools.repeat(b"ab" * 100_000, 50)
    pieces = itertools.chain([LISTED + b" VALUES (1,'"], long, [b"',5,6,'u',NULL)," + ROW + b";"])
    found = Dump(endless(pieces))
    first, second = found.rows()
    assert isinstance(first, Found)
    assert first.cells[0] == shape.Odd("too long")
    assert second == Found(1, CELLS)


def test_very_many_tables_with_the_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_TABLES_MAX", 2)
    text = b"".join(CREATE.replace(b"`journal`", b"`j%d`" % number) for number in range(3))
    with pytest.raises(FjordError, match="more than 2 tables"):
        read(text)


def test_a_long_set_is_passed_over() -> None:
    text = b"SET a = '" + b"x" * 5000 + b"', SQL_MODE='NO_BACKSLASH_ESCAPES';"
    assert read(text + LISTED + rb" VALUES (1,'\'',5,6,'u',NULL);") == [
        Found(1, [b"'", 5, 6, b"u", None])
    ]
    with pytest.raises(CutShortError):
        read(b"SET a")


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_an_error(text: bytes) -> None:
    for prefix in (b"", LISTED + b" VALUES ", LISTED + b" VALUES (1,'", CREATE[:60]):
        assert outcome(prefix + text, 1 << 20) == outcome(prefix + text, 7)


def outcome(text: bytes, step: int) -> tuple[list[Found | Bad], str]:
    found: list[Found | Bad] = []
    try:
        found.extend(Dump(bytewise(text, step)).rows())
    except FjordError as error:
        return found, str(error)
    return found, ""
