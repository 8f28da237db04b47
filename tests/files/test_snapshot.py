import hashlib
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, SnapshotError, SnapshotFileError, Tuner, presets
from rasp_tuner.files import snapshot

SMALL = {"memory_size": 20, "prompt_dim": 4, "experts": 3, "replay_size": 30}


def tuner(preset="paper", seed=5):
    return Tuner(
        {"pool": Int(1, 64, log=True), "timeout": Float(0.1, 10.0), "codec": Categorical(["lz4", "zstd"])},
        {"ms": "min", "tps": "max"},
        context=["qps", "kb"],
        default={"pool": 8, "timeout": 1.0, "codec": "zstd"},
        preset=preset,
        seed=seed,
    )


def rounds(tuner, count, start=0):
    """Drive a tuner through a fixed stream, with late, missing and failed answers, and return all it suggested."""
    trace, late = [], []
    for t in range(start, start + count):
        phase = t // 40 % 2
        context = {"qps": 3.0 * phase + 0.1 * np.sin(t), "kb": 1.0 - phase}
        suggestion = tuner.ask(context)
        trace.append((suggestion.id, suggestion.params))
        metrics = {"ms": (suggestion.params["timeout"] - 2 - 4 * phase) ** 2, "tps": float(suggestion.params["pool"])}
        if t % 17 == 3:
            tuner.tell_failed(suggestion.id, "crashed")
        elif t % 11 == 5:
            late.append((suggestion.id, metrics))
        elif t % 29 != 7:  # those are never answered
            tuner.tell(suggestion.id, metrics)
        if len(late) == 3:
            for id, old in reversed(late):
                tuner.tell(id, old)
            late.clear()
    for id, old in late:
        tuner.tell(id, old)
    return trace


@pytest.mark.parametrize("preset", presets.NAMES)
@pytest.mark.parametrize(("steps", "more"), [(0, 280), (260, 140)])
@pytest.mark.nightly
def test_hundreds_of_rounds_after_load_are_bit_identical(tmp_path, preset, steps, more):
    """Memories of both presets are full after about 230 rounds: once while it goes on, once before it is saved."""
    original = tuner(preset)
    rounds(original, steps)
    original.save(tmp_path / "state.rasp")
    loaded = Tuner.load(tmp_path / "state.rasp")
    assert rounds(loaded, more, steps) == rounds(original, more, steps)
    assert loaded.to_bytes() == original.to_bytes()


@pytest.mark.parametrize("preset", presets.NAMES)
def test_a_default_with_more_digits_than_are_legal_survives(preset):
    space = {"x": Float(0.3, 7.7), "y": Float(0.1, 9.0, log=True)}
    original = Tuner(space, {"m": "min"}, default={"x": 1.2345678912345678, "y": 10.0 / 3.0}, preset=preset)
    loaded = Tuner.from_bytes(original.to_bytes())
    for _ in range(20):
        a, b = original.ask(), loaded.ask()
        assert a == b
        original.tell(a.id, {"m": (a.params["x"] - 2.0) ** 2})
        loaded.tell(b.id, {"m": (b.params["x"] - 2.0) ** 2})
    assert loaded.to_bytes() == original.to_bytes()


def test_ids_and_explanations_survive_a_restart(tmp_path):
    original = tuner()
    rounds(original, 30)
    waiting = original.ask({"qps": 1.0, "kb": 0.5})
    original.save(tmp_path / "s")
    loaded = Tuner.load(tmp_path / "s")
    assert loaded.pending == original.pending
    assert loaded.explain(waiting.id) == original.explain(waiting.id)
    assert loaded.explain("s0") == original.explain("s0")
    loaded.tell(waiting.id, {"ms": 1.0, "tps": 2.0})
    assert loaded.explain(waiting.id).path in ("fast", "slow")


@pytest.mark.parametrize("preset", presets.NAMES)
def test_what_ran_survives_a_restart(tmp_path, preset):
    original = tuner(preset)
    rounds(original, 20)
    first, second = (original.ask({"qps": 1.0, "kb": 0.5}) for _ in range(2))
    metrics, ran = {"ms": 1.0, "tps": 2.0}, {"pool": 32, "timeout": 4.5}
    original.tell(first.id, metrics, ran)
    original.save(tmp_path / "s")
    loaded = Tuner.load(tmp_path / "s")
    assert loaded.explain(first.id).ran == {**first.params, **ran}
    for t in (original, loaded):
        t.tell(second.id, metrics, ran)
    assert loaded.explain(second.id) == original.explain(second.id)
    assert rounds(loaded, 20, 20) == rounds(original, 20, 20)
    assert loaded.to_bytes() == original.to_bytes()


def test_saving_changes_nothing_and_equal_tuners_save_equal_bytes(tmp_path):
    a, b = tuner(), tuner()
    for t in (a, b):
        rounds(t, 50)
    first = a.to_bytes()
    a.save(tmp_path / "x")
    assert a.to_bytes() == first == b.to_bytes() == (tmp_path / "x").read_bytes()


def test_a_preset_with_other_constants_survives():
    original = tuner(presets.paper(**SMALL, base_step=0.25))
    rounds(original, 20)
    loaded = Tuner.from_bytes(original.to_bytes())
    assert loaded._optimizer.policy.base_step == 0.25
    assert rounds(loaded, 20, 20) == rounds(original, 20, 20)


def test_extreme_values_survive():
    original = Tuner({"x": Float(0, 1)}, {"m": "min"}, context=1, preset=presets.paper(**SMALL))
    for t in range(20):
        suggestion = original.ask([(-1.0) ** t * 1e308])
        original.tell(suggestion.id, {"m": (-1.0) ** t * 1e308})
    assert Tuner.from_bytes(original.to_bytes()).to_bytes() == original.to_bytes()


def test_the_old_file_survives_a_failed_write(tmp_path, monkeypatch):
    path = tmp_path / "state"
    tuner().save(path)
    before = path.read_bytes()

    def broken(_descriptor):
        raise OSError("disk on fire")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(SnapshotFileError, match="disk on fire"):
        tuner(seed=9).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state"]  # no temporary file is left behind


def test_links_are_followed_and_modes_kept(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    tuner(presets.paper(**SMALL)).save(link)
    assert link.is_symlink()
    assert Tuner.load(real).learned == 0
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_new_file_gets_the_usual_mode(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    tuner(presets.paper(**SMALL)).save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", tmp_path):
        with pytest.raises(SnapshotFileError, match="not a regular file"):
            tuner(presets.paper(**SMALL)).save(target)


def test_long_file_names_and_other_buffers_work(tmp_path):
    original = tuner(presets.paper(**SMALL))
    original.save(tmp_path / ("x" * 250))
    assert Tuner.load(tmp_path / ("x" * 250)).to_bytes() == original.to_bytes()
    for kind in (bytearray, memoryview):
        assert Tuner.from_bytes(kind(original.to_bytes())).to_bytes() == original.to_bytes()


def test_file_and_folder_are_both_flushed_to_disk(tmp_path, monkeypatch):
    flushed, real = [], os.fsync

    def fsync(descriptor):
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    tuner(presets.paper(**SMALL)).save(tmp_path / "state")
    assert len(flushed) == 2
    assert flushed[0].endswith(".tmp")
    assert flushed[1] == str(tmp_path)


def test_every_truncation_is_noticed():
    data = tuner(presets.paper(**SMALL)).to_bytes()
    for length in [*range(0, 120), *range(120, len(data), 997), len(data) - 1]:
        with pytest.raises(SnapshotError, match=r"truncated|not a RASP-Tuner snapshot"):
            Tuner.from_bytes(data[:length])


def test_every_flipped_byte_is_noticed():
    data = tuner(presets.paper(**SMALL)).to_bytes()
    for position in [*range(0, 60), *range(60, len(data), 499)]:
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        with pytest.raises(SnapshotError):
            Tuner.from_bytes(bytes(damaged))


def test_a_newer_format_names_both_versions():
    data = bytearray(tuner(presets.paper(**SMALL)).to_bytes())
    data[8:12] = struct.pack("<I", 2)
    with pytest.raises(SnapshotError, match="format version 2, this library reads up to 1: upgrade"):
        Tuner.from_bytes(bytes(data))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01.", b"PK\x03\x04" + bytes(100), bytes(1000)])
def test_foreign_files_are_named_as_such(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="not a RASP-Tuner snapshot"):
        Tuner.load(path)


def sealed(header, arrays=()):
    """A frame whose checksum is right, around any content."""
    text = json.dumps({"arrays": list(arrays), **header}).encode()
    body = snapshot._PREFIX.pack(snapshot.MAGIC, 1, len(text)) + text
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "data",
    [
        sealed({}),
        sealed({"space": {}}),
        sealed({"space": {"x": {"type": "float", "low": 2, "high": 1}}, "metrics": {}}),
        sealed({}, [["keys", [10**9]]]),
        sealed({}, [["keys", [-1]]]),
        sealed({}, [["keys", [True]]]),
        sealed({}, [["keys", [0]], ["keys", [0]]]),
        sealed({}, [["keys", "no"]]),
        sealed({}, [5]),
        sealed({}, [["keys", [10**30]]]),
    ],
)
def test_sound_frames_around_nonsense_are_refused(data):
    with pytest.raises(SnapshotError, match="snapshot"):
        Tuner.from_bytes(data)


@pytest.mark.parametrize("change", [{"learned": "many"}, {"ledger": {}}, {"random": {}}, {"preset": {"name": "best"}}])
def test_a_damaged_header_with_a_right_checksum_is_refused(change):
    header, arrays = snapshot.decode(tuner(presets.paper(**SMALL)).to_bytes())
    with pytest.raises(SnapshotError, match="does not describe a tuner"):
        Tuner.from_bytes(snapshot.encode({**header, **change}, arrays))


def test_a_number_that_is_not_finite_is_refused():
    header, arrays = snapshot.decode(tuner(presets.paper(**SMALL)).to_bytes())
    arrays["surrogate/expert1.w"][0, 0, 0] = np.nan
    with pytest.raises(SnapshotError, match=r"'surrogate/expert1.w' holds a number that is not finite"):
        Tuner.from_bytes(snapshot.encode(header, arrays))


def test_an_array_of_another_shape_is_refused():
    header, arrays = snapshot.decode(tuner(presets.paper(**SMALL)).to_bytes())
    arrays["surrogate/expert1.w"] = arrays["surrogate/expert1.w"][None]
    with pytest.raises(SnapshotError, match=r"'surrogate/expert1.w' must have the shape \["):
        Tuner.from_bytes(snapshot.encode(header, arrays))


@pytest.mark.parametrize("path", ["no/such/folder/file", "", "\0", "\ud800", 5, None, b"bytes"])
def test_unwritable_and_unreadable_paths_raise_typed_errors(path):
    with pytest.raises(SnapshotFileError, match=r"cannot write|a snapshot path must be"):
        tuner(presets.paper(**SMALL)).save(path)
    with pytest.raises(SnapshotFileError, match="snapshot"):
        Tuner.load(path)


def test_arrays_take_no_more_room_than_their_bytes():
    table = [[f"a{i}", [-1]] for i in range(1_000)]  # each would be all of the file
    with pytest.raises(SnapshotError, match="shape"):
        snapshot.decode(sealed({}, table))
