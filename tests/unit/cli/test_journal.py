"""`fjord journal`: what the verbs print, and how they end."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fjord import ops
from fjord.cli.journal import app
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout, Owner
from fjord.errors import CorruptionError
from fjord.journal.reader import Journal
from fjord.ops import Op, Opcode
from fjord.testing import SimClock
from tests.unit.engine.world import open_at, write
from tests.unit.journal.test_inspect import commit, create_table
from tests.unit.journal.writing import append, open_writer, rotate, segment_file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: seqs 1 (a table's name), 2-3, 4 in segment 1, and 5-7 in segment 2."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "index").mkdir()
    writer = open_writer(tmp_path / "journal")
    commit(writer, create_table(1, b"settings"), rows=1)
    append(writer, b"two", b"three")
    append(writer, b"four")
    rotate(writer)
    append(writer, b"five", b"six", b"\x1b[31m\n")
    writer.close()
    layout = Layout(str(tmp_path))
    layouts.write_mark(LocalDisk(), layout.clean, Clean(seq=7, index="an index", lease_us=5))
    layouts.write_mark(LocalDisk(), layout.owner, Owner(boot="a boot", index="an index"))
    return tmp_path


def run(*arguments: str | int | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def damage(data: Path, segment: int = 1, offset: int = 300) -> None:
    path = segment_file(data / "journal", segment)
    changed = bytearray(path.read_bytes())
    changed[offset] ^= 1
    path.write_bytes(bytes(changed))


def test_dump_prints_a_line_a_row(data: Path) -> None:
    result = run("dump", "--data", data)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(seq) for seq in range(1, 8)]
    assert lines[1].split("\t")[2:4] == ["KV_INSERT", "settings"]
    assert "key=key-0" in lines[1].split("\t")
    assert "\x1b" not in result.stdout, "nothing controls the terminal"


def test_dump_prints_json_and_only_what_is_wanted(data: Path) -> None:
    result = run(
        "dump", "--data", data, "--from", "2", "--to", "5", "--table", "settings", "--json"
    )
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["seq"] for row in rows] == [2, 3, 4, 5]
    assert rows[0]["fields"]["key"] == "key-0"
    assert rows[0]["fields"]["type"] == "buffer"
    assert rows[0]["fields"]["value"] == {"base64": "dHdv"}
    assert rows[0]["at"] == "2023-11-14T22:13:20+00:00"


def test_dump_of_a_table_that_is_not_there_ends_with_1(data: Path) -> None:
    result = run("dump", "--data", data, "--table", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "NOT_FOUND: the journal has no table nope" in result.stderr
    damage(data)
    assert run("dump", "--data", data, "--table", "nope").exit_code == 2, "who knows"


def test_dump_from_behind_to_is_wrong_use(data: Path) -> None:
    result = run("dump", "--data", data, "--from", "5", "--to", "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--from 5 is behind --to 2" in result.stderr


@pytest.fixture
def taken_over(tmp_path: Path) -> Path:
    """Seqs 1, of a new writer who began behind seq 40, and 2, of a client."""
    (tmp_path / "journal").mkdir()
    writer = open_writer(tmp_path / "journal")
    uuid, client = Strings.of([b"u" * 16]), Strings.of([b"c" * 15 + b"\xff"])
    takeover = Op(Opcode.TAKEOVER, 0, 1, ((40,), uuid))
    answered = Op(Opcode.ANSWERED, 0, 1, ((8,), (9,), client, Strings.of([b"ok"])))
    commit(writer, ops.encode(takeover)[0], ops.encode(answered)[0], rows=2)
    writer.close()
    return tmp_path


def test_dump_keeps_the_columns_of_a_row_apart_from_its_place(taken_over: Path) -> None:
    lines = run("dump", "--data", taken_over, "--json").stdout.splitlines()
    takeover, answered = [json.loads(line) for line in lines]
    assert (takeover["seq"], answered["seq"]) == (1, 2)
    assert takeover["fields"] == {"seq": 40, "uuid": {"base64": "dXV1dXV1dXV1dXV1dXV1dQ=="}}
    assert answered["fields"] == {
        "at_us": 8,
        "number": 9,
        "client": {"base64": "Y2NjY2NjY2NjY2NjY2Nj/w=="},
        "answer": {"base64": "b2s="},
    }


def test_dump_shows_identities_as_hex(taken_over: Path) -> None:
    takeover, answered = run("dump", "--data", taken_over).stdout.splitlines()
    assert f"uuid={'75' * 16}" in takeover.split("\t")
    assert f"client={'63' * 15}ff" in answered.split("\t")
    assert "answer=ok" in answered.split("\t")


def test_dump_goes_on_behind_damage_and_ends_with_2(data: Path) -> None:
    damage(data)
    result = run("dump", "--data", data, "--json")
    assert result.exit_code == 2
    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1, 4, 5, 6, 7]
    assert "seqs 2 to 3 are lost" in result.stderr


def test_verify_says_that_a_journal_is_whole(data: Path) -> None:
    result = run("verify", "--data", data)
    assert result.exit_code == 0
    assert "segment 1:" in result.stdout
    assert "3 frames, 4 rows, seqs 1 to 4" in result.stdout
    assert result.stdout.splitlines()[-1] == "whole: 2 segments"


def test_verify_names_the_damage_and_ends_with_2(data: Path) -> None:
    damage(data)
    result = run("verify", "--data", data)
    assert result.exit_code == 2
    assert f"{segment_file(data / 'journal')} is damaged at byte" in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 1 places, 2 rows are lost"
    found = json.loads(run("verify", "--data", data, "--json").stdout)
    assert (found["damaged"], found["lost_rows"]) == (True, 2)
    assert found["segments"][0]["damages"][0]["first_seq"] == 2


def test_verify_knows_from_the_clean_mark_what_must_be_there(data: Path) -> None:
    damage(data, 2, 70)
    assert run("verify", "--data", data).exit_code == 2
    (data / "clean").unlink()
    assert run("verify", "--data", data).exit_code == 0, "now it is a torn tail"


def test_verbs_work_beside_a_writer(data: Path) -> None:
    lock = LocalDisk().lock(Layout(str(data)).lock)
    for arguments in (["dump"], ["verify"], ["explain", "--segment", "1"]):
        assert run(arguments[0], "--data", data, *arguments[1:]).exit_code == 0
    result = run("repair", "--data", data, "--yes")
    assert result.exit_code == 2
    assert "writes to" in result.stderr
    assert result.stderr.endswith("; stop it\n"), "what can be done from a shell"
    lock.release()


def test_explain_names_the_bytes(data: Path) -> None:
    result = run("explain", "--data", data, "--segment", "1", "--at", "8")
    assert result.exit_code == 0
    assert "00000000\t8\tmagic\tFJORDSEG\t" in result.stdout
    assert [line for line in result.stdout.splitlines() if line.endswith("<--")] == [
        "00000008\t4\tversion\t1\t<--"
    ]
    rows = run("explain", "--data", data, "--segment", "2", "--json").stdout.splitlines()
    assert json.loads(rows[0]) == {"offset": 0, "size": 8, "name": "magic", "value": "FJORDSEG"}


def test_explain_of_a_segment_that_is_not_there_is_an_error(data: Path) -> None:
    result = run("explain", "--data", data, "--segment", "9")
    assert result.exit_code == 2
    assert "segment 9 does not exist" in result.stderr


def test_explain_of_a_byte_behind_the_file_is_wrong_use(data: Path) -> None:
    size = segment_file(data / "journal").stat().st_size
    assert run("explain", "--data", data, "--segment", "1", "--at", size - 1).exit_code == 0
    result = run("explain", "--data", data, "--segment", "1", "--at", size)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"segment 1 has {size} bytes; there is no byte {size}" in result.stderr


def test_repair_changes_nothing_without_yes(data: Path) -> None:
    damage(data)
    before = segment_file(data / "journal").read_bytes()
    result = run("repair", "--data", data)
    assert result.exit_code == 0
    assert "seqs 2 to 3 are lost" in result.stdout
    assert "nothing was changed" in result.stdout
    assert segment_file(data / "journal").read_bytes() == before
    assert not (data / "quarantine").exists()
    assert Path(Layout(str(data)).owner).exists()


def test_repair_leaves_a_journal_that_can_be_read_and_no_index_to_trust(data: Path) -> None:
    damage(data)
    result = run("repair", "--data", data, "--yes")
    assert result.exit_code == 0
    assert "2 frames kept, 2 rows are lost" in result.stdout
    assert (data / "quarantine" / "0000000001.seg").exists()
    journal = Journal(LocalDisk(), str(data / "journal"))
    assert [one.frame.rows for one in journal.frames(1, durable_seq=7)] == [1, 2, 1, 3]
    layout = Layout(str(data))
    assert layouts.read_mark(LocalDisk(), layout.clean, Clean) == Clean(seq=7, index="", lease_us=5)
    assert layouts.read_mark(LocalDisk(), layout.owner, Owner) is None
    assert run("verify", "--data", data).exit_code == 0


def test_repair_of_a_whole_journal_does_nothing(data: Path) -> None:
    result = run("repair", "--data", data, "--yes", "--json")
    found = json.loads(result.stdout)
    assert (found["damaged"], found["repaired"]) == (False, [])
    layout = Layout(str(data))
    assert layouts.read_mark(LocalDisk(), layout.owner, Owner) is not None


def filled(path: Path) -> list[Path]:
    """Fills a real data directory; returns its segments."""
    clock = SimClock()
    engine = open_at(path, clock)
    for number in range(60):
        write(engine, clock, {b"key-%d" % number: b"x" * 3000})
    engine.close()
    return sorted((path / "journal").glob("*.seg"))


def test_a_directory_without_its_first_segment_is_damaged_until_it_is_repaired(
    tmp_path: Path,
) -> None:
    first, *_ = filled(tmp_path)
    first.unlink()
    result = run("verify", "--data", tmp_path)
    assert result.exit_code == 2
    lost = re.search(r"seqs 1 to (\d+) are lost", result.stdout)
    assert lost is not None
    assert result.stdout.endswith(f"{lost[1]} rows are lost\n")
    with pytest.raises(CorruptionError):
        open_at(tmp_path)
    result = run("repair", "--data", tmp_path, "--yes")
    assert result.exit_code == 0
    assert f"{first} is repaired: 0 frames kept, {lost[1]} rows are lost" in result.stdout
    assert run("verify", "--data", tmp_path).exit_code == 0
    open_at(tmp_path).close()
    kept = run("dump", "--data", tmp_path, "--json").stdout.splitlines()
    keys = {json.loads(line)["fields"].get("key") for line in kept}
    assert "key-59" in keys
    assert "key-0" not in keys


def test_a_directory_without_any_segment_is_damaged_until_it_is_repaired(tmp_path: Path) -> None:
    for path in filled(tmp_path):
        path.unlink()
    with pytest.raises(CorruptionError):
        open_at(tmp_path)
    assert run("verify", "--data", tmp_path).exit_code == 2
    assert run("repair", "--data", tmp_path, "--yes").exit_code == 0
    assert run("verify", "--data", tmp_path).exit_code == 0
    open_at(tmp_path).close()


def test_a_directory_of_which_nothing_is_known_any_more_has_no_journal(tmp_path: Path) -> None:
    for path in [*filled(tmp_path), tmp_path / "clean"]:
        path.unlink()
    os.truncate(tmp_path / "published", 0)
    result = run("verify", "--data", tmp_path)
    assert result.exit_code == 2
    assert "has no journal" in result.stderr


@pytest.mark.parametrize("verb", ["dump", "verify", "explain", "repair"])
def test_a_directory_without_a_journal_is_refused(tmp_path: Path, verb: str) -> None:
    extra = ["--segment", "1"] if verb == "explain" else []
    for path in (tmp_path, tmp_path / "none"):
        result = run(verb, "--data", path, *extra)
        assert result.exit_code == 2
        assert "not a Fjord data directory" in result.stderr
        assert not (tmp_path / "none").exists()
