"""Nights on a store in a bucket: the same bits as on a disk, wherever the parts of a run are."""

from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import bucket, forget_mirror, object_server, read_bucket  # noqa: F401


def run_three(nights, tmp_path=None, monkeypatch=None):
    """Facts of a first night, one of nothing new, and one with another file."""
    nights.deliver("a.csv", draw_ratings(300, 6), range(300))
    found = [nights.run(), nights.run()]
    if monkeypatch is not None:
        forget_mirror(monkeypatch, tmp_path / "another machine")
    nights.deliver("b.csv", draw_ratings(200, 6, seed=1), range(200, 400))
    return [*found, nights.run()]


def test_run__same_bits_as_on_a_disk(bucket, tmp_path, monkeypatch):  # noqa: F811
    on_disk = Nights(tmp_path / "disk", make_movies(6), monkeypatch)
    expected = run_three(on_disk)
    address = f"s3://{bucket}/stores/nights"
    in_bucket = Nights(
        tmp_path / "bucket", make_movies(6), monkeypatch, store={"path": address, "folds": 8}
    )
    found = run_three(in_bucket, tmp_path, monkeypatch)
    assert [each["outcome"] for each in found] == [each["outcome"] for each in expected]
    assert [each["live_model"] for each in found] == [each["live_model"] for each in expected]
    assert [each["run"] for each in found] == [1, 2, 3]
    assert found[-1]["live"].startswith(f"{address}/model/")
    assert not (tmp_path / "bucket" / "s3:").exists()

    def list_content(store):
        return {entry.reference.identity: entry for entry in store.entries()}

    assert list_content(in_bucket.store) == list_content(on_disk.store)
