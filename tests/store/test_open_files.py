"""What a process keeps of files: the last ones used, and none for long whose file is gone."""

from __future__ import annotations

from anabranch.store.open_files import CHECKED_PER_PUT, OpenFileCache


def kept(limit: int = 100) -> tuple[OpenFileCache[int, str], set[int], list[int]]:
    """With the files that are there, and the names after which it looked."""
    there: set[int] = set()
    looked: list[int] = []

    def is_there(key: int) -> bool:
        looked.append(key)
        return key in there

    return OpenFileCache(limit, is_there), there, looked


def test_what_was_kept_is_found_until_all_is_let_go() -> None:
    files, _, _ = kept()
    assert files.get(1) is None
    files.put(1, "one")
    assert files.get(1) == "one"
    files.clear()
    assert files.get(1) is None


def test_the_one_unused_longest_is_let_go_beyond_the_limit() -> None:
    files, there, _ = kept(limit=2)
    there |= {1, 2, 3}
    files.put(1, "one")
    files.put(2, "two")
    files.get(1)
    files.put(3, "three")
    assert [files.get(key) for key in (1, 2, 3)] == ["one", None, "three"]


def test_one_whose_file_is_gone_is_let_go_soon() -> None:
    files, there, _ = kept()
    for key in range(40):
        there.add(key)
        files.put(key, str(key))
    there -= set(range(0, 40, 3))
    for key in range(40, 46):
        there.add(key)
        files.put(key, str(key))
    assert {key for key in range(46) if files.get(key) is not None} == there


def test_it_looks_after_a_few_at_a_time_each_in_its_turn() -> None:
    files, there, looked = kept()
    for key in range(20):
        there.add(key)
        files.put(key, str(key))
    looked.clear()
    files.put(20, "")
    assert len(looked) == CHECKED_PER_PUT
    there.add(20)
    for _ in range(2):
        files.put(20, "")
    assert set(looked) >= set(range(20))


def test_what_was_let_go_for_the_limit_is_not_looked_after() -> None:
    files, there, looked = kept(limit=1)
    for key in range(10):
        there.add(key)
        files.put(key, str(key))
    looked.clear()
    files.put(9, "")
    assert looked == [9]
