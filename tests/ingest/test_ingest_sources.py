import bz2
import errno
import gzip
import hashlib
import io
import lzma

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from pmflib.base import SourceError, UnreachableError
from pmflib.ingest import (
    SourceOptions,
    digest_source,
    find_sources,
    open_source,
    read_rows,
    sources,
)


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_csv", ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_find_sources__file_has_its_base_name(tmp_path):
    write(tmp_path, a_csv=b"x\n1\n")
    (source,) = find_sources(str(tmp_path / "a.csv"))
    assert (source.name, source.size) == ("a.csv", 4)
    with open_source(source) as stream:
        assert stream.read() == b"x\n1\n"


def test_find_sources__folder_leaves_out_hidden_and_private(tmp_path):
    write(tmp_path, b_csv=b"x\n", a__z_csv=b"x\n")
    for name in (".hidden.csv", "_SUCCESS", ".git/c.csv", "_tmp/d.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x\n")
    assert [source.name for source in find_sources(str(tmp_path))] == ["a/z.csv", "b.csv"]
    assert [source.name for source in find_sources(f"{tmp_path}/")] == ["a/z.csv", "b.csv"]


def test_find_sources__glob_names_start_below_its_fixed_part(tmp_path):
    write(tmp_path, p__x_csv=b"x\n", q__x_csv=b"x\n", q__y_txt=b"x\n")
    names = [source.name for source in find_sources(str(tmp_path / "*" / "*.csv"))]
    assert names == ["p/x.csv", "q/x.csv"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["b.csv"]),
        (".*.csv", [".b.csv.swp.csv"]),
        ("*", ["b.csv"]),
        ("**/*.csv", ["b.csv", "p/a.csv"]),
        (".git/*.csv", ["c.csv"]),
        (".g*/*.csv", [".git/c.csv"]),
        ("*/.h*", ["p/.hidden.csv"]),
        ("[.]b*", None),
    ],
)
def test_find_sources__glob_leaves_out_hidden_names_unless_it_begins_with_a_dot(
    tmp_path, pattern, names
):
    (tmp_path / "p").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.csv", ".b.csv.swp.csv", "p/a.csv", "p/.hidden.csv", ".git/c.csv"):
        (tmp_path / name).write_bytes(b"x\n")
    if names is None:
        with pytest.raises(SourceError, match="matches no file"):
            find_sources(str(tmp_path / pattern))
        return
    assert [source.name for source in find_sources(str(tmp_path / pattern))] == names


def test_find_sources__several_paths_are_sorted_and_listed_once(tmp_path):
    write(tmp_path, b_csv=b"x\n", a_csv=b"x\n")
    paths = (str(tmp_path / "b.csv"), str(tmp_path), str(tmp_path / "a.csv"))
    assert [source.name for source in find_sources(paths)] == ["a.csv", "b.csv"]


def test_find_sources__url():
    files = fsspec.filesystem("memory")
    files.pipe("/find/a.csv", b"x\n1\n")
    (source,) = find_sources("memory://find/*.csv")
    assert source.name == "a.csv"
    assert digest_source(source) == hashlib.sha256(b"x\n1\n").hexdigest()
    files.rm("/find", recursive=True)


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("", "x.csv"),
        ("?sig=hunter2&page=1", "x.csv?sig=***&page=1"),
        ("#hunter2", "x.csv#***"),
        ("?hunter2", "x.csv?***"),
        ("?page=1#hunter2", "x.csv?page=1#***"),
    ],
)
def test_name_file__nothing_of_a_url_after_its_path_but_what_is_harmless(end, name):
    assert sources._name_file(f"https://host/day/x.csv{end}", "https://host/day") == name
    assert sources._name_file("day/x#1.csv", "day") == "x#1.csv"


def test_find_sources__refuses_what_is_not_there(tmp_path):
    for path, named in (
        (str(tmp_path / "none.csv"), r"none\.csv"),
        (str(tmp_path / "*.csv"), r"\*\.csv"),
        ((), r"source\.path"),
        ("nowhere://bucket/a.csv", "nowhere://"),
    ):
        with pytest.raises(SourceError, match=named):
            find_sources(path)


def test_find_sources__refuses_an_empty_file(tmp_path):
    write(tmp_path, a_csv=b"x\n", b_csv=b"")
    with pytest.raises(SourceError, match=r"b\.csv"):
        find_sources(str(tmp_path))


def test_find_sources__refuses_equal_names(tmp_path):
    write(tmp_path, p__x_csv=b"x\n", q__x_csv=b"x\n")
    with pytest.raises(SourceError, match=r"'x\.csv'"):
        find_sources((str(tmp_path / "p/x.csv"), str(tmp_path / "q/x.csv")))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_open_source__unpacks_by_name_and_digests_what_is_stored(tmp_path, suffix, pack):
    content = b"a,b\n" + b"1,2\n" * 1000
    packed = pack(content)  # once: gzip writes the time
    (tmp_path / f"x.csv{suffix}").write_bytes(packed)
    (source,) = find_sources(str(tmp_path))
    with open_source(source) as stream:
        assert stream.read() == content
    assert digest_source(source) == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_read_rows__file_that_expands_beyond_measure(tmp_path, monkeypatch, suffix, pack):
    rows = b"a,b\n" + b"1,2\n" * 100_000
    path = tmp_path / f"x.csv{suffix}"
    path.write_bytes(pack(rows))
    config = SourceOptions.model_validate({"path": str(path), "layout": "wide"})
    found = find_sources(str(path))
    monkeypatch.setattr(sources, "FREE_BYTES", len(rows))
    assert sum(raw.batch.num_rows for raw in read_rows(found[0], config, ["a"])) == 100_000
    monkeypatch.setattr(sources, "FREE_BYTES", len(rows) - 1)
    monkeypatch.setattr(sources, "MOST_EXPANSION", len(rows) // path.stat().st_size + 1)
    assert sum(raw.batch.num_rows for raw in read_rows(found[0], config, ["a"])) == 100_000
    monkeypatch.setattr(sources, "MOST_EXPANSION", len(rows) // path.stat().st_size - 1)
    with pytest.raises(SourceError, match=rf"x\.csv{suffix}: .* smaller files"):
        list(read_rows(found[0], config, ["a"]))


def test_open_source__file_that_vanished(tmp_path):
    write(tmp_path, a_csv=b"x\n")
    (source,) = find_sources(str(tmp_path))
    (tmp_path / "a.csv").unlink()
    with pytest.raises(SourceError, match=r"a\.csv"):
        digest_source(source)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_read_rows__failing_disk_is_not_the_files_fault(tmp_path, monkeypatch, name):
    # who runs the stage may then try again
    (tmp_path / name).write_bytes(b"a\n1\n")
    (source,) = find_sources(str(tmp_path))

    class FailingFile(io.RawIOBase):
        position = 0

        def readable(self):
            return True

        def seekable(self):
            return True

        def seek(self, offset, whence=0):
            self.position = (0, self.position, 1000)[whence] + offset
            return self.position

        def readinto(self, buffer):
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(LocalFileSystem, "open", lambda *args, **options: FailingFile())
    with pytest.raises(UnreachableError, match="input/output error"):
        list(read_rows(source, SourceOptions(path="x", layout="wide"), ["a"]))
