import pytest

from pmflib.kernels.readiness import KernelState, find_kernel_state
from pmflib_tasks.operations.doctor.processes import (
    check_kernels,
    check_text_encodings,
    check_versions,
)
from tests.operations.doctor.health_cases import (
    PROCESS,
    VERSIONS,
    states_of,
    with_process,
    with_versions,
)

KERNELS = KernelState("znver5", "avx512f", is_plain=False, works=True, folder="/cache", reason="")


def test_check_versions__all_alike():
    (line,) = check_versions(VERSIONS, VERSIONS, {"a": VERSIONS, "b": VERSIONS})
    assert line.state == "ok"
    assert "the same on client, scheduler and 2 workers" in line.found
    (line,) = check_versions(VERSIONS, None, {})
    assert "scheduler" not in line.found


@pytest.mark.parametrize(
    ("package", "theirs", "state"),
    [
        ("python", "3.12.1", "FAIL"),
        ("python", "3.11.9", None),
        ("pmflib", "0.2.1", "FAIL"),
        ("distributed", "2026.8.1", "FAIL"),
        ("numpy", "1.26.4", "FAIL"),
        ("numpy", "2.3.0", "warn"),
        ("numba", "0.67.0", "warn"),
        ("zarr", "4.0.0", "FAIL"),
        ("zarr", "3.1.5", "warn"),
        ("pyarrow", "25.0.0", "warn"),
        ("pyarrow", "", "FAIL"),
        ("obstore", "0.12.0", None),
    ],
)
def test_check_versions__a_difference_weighs_what_it_can_break(package, theirs, state):
    lines = check_versions(
        VERSIONS, VERSIONS, {"a": with_versions(**{package: theirs}), "b": VERSIONS}
    )
    assert states_of(lines) == [state or "ok"]
    if state:
        assert f"at a; here {VERSIONS[package]}" in lines[0].found
        assert lines[0].remedy


def test_check_versions__a_scheduler_reads_no_files():
    assert states_of(check_versions(VERSIONS, with_versions(zarr="", pyarrow=""), {})) == ["ok"]
    (line,) = check_versions(VERSIONS, with_versions(pmflib=""), {})
    assert (line.state, line.fault) == ("FAIL", "infrastructure")
    assert "pmflib is not installed at scheduler" in line.found
    (line,) = check_versions(VERSIONS, "No module named 'pmflib'", {})
    assert line.state == "FAIL"


def test_check_versions__a_bucket_needs_obstore_everywhere():
    here = with_versions(obstore="0.12.1")
    (line,) = check_versions(here, here, {"a": VERSIONS}, needs_obstore=True)
    assert line.state == "FAIL"
    assert "obstore is not installed at a" in line.found
    assert states_of(check_versions(here, here, {"a": VERSIONS})) == ["ok"]
    (line,) = check_versions(VERSIONS, None, {}, needs_obstore=True)
    assert (line.state, line.fault) == ("FAIL", "configuration")


def test_check_kernels__vector_code_plain_and_broken():
    assert states_of(check_kernels({"client": KERNELS})) == ["ok", "ok"]
    plain = KernelState("znver5", "avx2", is_plain=True, works=False, folder="/cache", reason="")
    lines = check_kernels({"client": KERNELS, "a": plain})
    assert states_of(lines) == ["warn", "ok"]
    assert "PMF_PLAIN_KERNELS is set for a" in lines[0].found
    broken = KernelState("x", "", is_plain=False, works=False, folder="", reason="no folder")
    lines = check_kernels({"a": broken})
    assert states_of(lines) == ["warn", "warn"]
    assert "every process compiles" in lines[1].found
    (line,) = check_kernels({"a": "no answer in 120 s"})
    assert line.state == "warn"
    assert "a (no answer in 120 s)" in line.found


def test_check_kernels__other_processors_are_no_fault():
    other = KernelState("neoverse", "neon", is_plain=False, works=True, folder="/cache", reason="")
    lines = check_kernels({"client": KERNELS, "a": other})
    assert states_of(lines) == ["ok", "ok"]
    assert "avx512f, neon; they differ" in lines[0].found


def test_check_text_encodings__not_utf8():
    assert check_text_encodings({"client": PROCESS}).state == "ok"
    odd = with_process(encoding=("utf-8", "ANSI_X3.4-1968"))
    line = check_text_encodings({"client": PROCESS, "a": odd})
    assert line.state == "warn"
    assert "a (utf-8/ANSI_X3.4-1968)" in line.found


def test_find_kernel_state__of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("PMF_PLAIN_KERNELS", raising=False)
    state = find_kernel_state()
    assert state.works
    assert not state.is_plain
    assert state.folder
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    state = find_kernel_state()
    assert state.folder == ""
    assert "set NUMBA_CACHE_DIR" in state.reason
