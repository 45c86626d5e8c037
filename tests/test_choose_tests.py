"""Which tests a change is given, in a repository of a few files and in this one."""

import subprocess

import pytest

from tests.choose_tests import MAX_DISTANCE, ROOT, Imports, choose, list_changed, read_seconds

FILES = {
    "pyproject.toml": '[tool.mypy]\nfiles = ["lib", "jobs", "tests"]\n'
    '[tool.pytest.ini_options]\npythonpath = [".", "jobs"]\n',
    "lib/__init__.py": "if TYPE_CHECKING:\n    from lib.low import base\n    from lib.high import Top, top\n",
    "lib/low.py": "def base(): ...\n",
    "lib/high.py": "from lib.low import base\n",
    "lib/table.py": 'METHODS = {"slow": "lib.late:run"}\n',
    "lib/late.py": "",
    "lib/page.html.j2": "",
    "lib/render.py": 'TEMPLATE = "page.html.j2"\n',
    "jobs/lib_jobs/__init__.py": "",
    "jobs/lib_jobs/count.py": "from lib import high\n",
    "lib/part/hooks.py": 'HOOKS = {"kinds": {"new": "lib.part.kind:NEW"}}\n',
    "lib/part/kind.py": "",
    "tests/part/test_part.py": "def test_it(): ...\n",
    "tests/conftest.py": "from lib.late import run\n\ndef late(): ...\n",
    "tests/helper.py": "from lib.low import base\n",
    "tests/test_public.py": "import lib as short\n\ndef test_it(): short.top()\n",
    "tests/lib/test_low.py": "from lib.low import base\n\ndef test_it(): ...\ndef test_that(): ...\n",
    "tests/jobs/test_count.py": "from lib_jobs.count import count\n\ndef test_it(): ...\n",
    "tests/other/test_helped.py": "from tests.helper import help\n\ndef test_it(): ...\n",
    "tests/other/test_direct.py": "import lib.low\n\ndef test_it(): ...\n",
    "tests/other/test_fixture.py": "def test_it(late): ...\n",
    "tests/other/test_table.py": "from lib.table import METHODS\n\ndef test_it(): ...\n",
    "tests/other/test_page.py": "from lib.render import TEMPLATE\n\ndef test_it(): ...\n",
    "tests/other/test_slow.py": "from lib.low import base\npytestmark = pytest.mark.slow\n\ndef test_it(): ...\n",
    "tests/other/test_names.py": "import lib\n\ndef test_it(): dir(lib)\n",
}
LOW = ["lib/test_low.py", "other/test_direct.py"]


@pytest.fixture
def repository(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # direct ones first, and of these the folder's own; then who imports through others
        ("lib/low.py", [*LOW, "other/test_helped.py", "test_public.py", "jobs/test_count.py"]),
        ("tests/helper.py", ["other/test_helped.py"]),
        ("tests/other/test_direct.py", ["other/test_direct.py"]),
        # a public name is the module that defines it, and not all that the package has
        ("lib/high.py", ["test_public.py", "jobs/test_count.py"]),
        ("lib/__init__.py", ["other/test_names.py", "test_public.py", "jobs/test_count.py"]),
        ("jobs/lib_jobs/count.py", ["jobs/test_count.py"]),
        # by name in a table; by a fixture
        ("lib/late.py", ["other/test_fixture.py", "other/test_table.py"]),
        # by its place in the table of hooks of its folder
        ("lib/part/kind.py", ["part/test_part.py"]),
        ("lib/page.html.j2", ["other/test_page.py"]),
        ("lib/gone.py", []),
        ("README.md", []),
    ],
)
def test_choose__nearest_first(repository, changed, expected):
    chosen, left = choose(Imports(repository), [changed], {})
    assert chosen == [f"tests/{name}" for name in expected]
    assert left == []


def test_choose__a_module_that_is_gone_has_those_who_import_it(repository):
    (repository / "lib" / "low.py").unlink()
    assert set(choose(Imports(repository), ["lib/low.py"], {})[0]) >= {f"tests/{x}" for x in LOW}


def test_choose__not_far_off(repository):
    for number in range(5):
        text = f"import lib.chain{number - 1}\n" if number else ""
        (repository / "lib" / f"chain{number}.py").write_text(text)
        test = f"import lib.chain{number}\n\ndef test_it(): ...\n"
        (repository / "tests" / f"test_chain{number}.py").write_text(test)
    chosen, _ = choose(Imports(repository), ["lib/chain0.py"], {})
    assert chosen == [f"tests/test_chain{number}.py" for number in range(MAX_DISTANCE)]


def test_choose__as_long_as_there_is_time_but_always_what_has_changed(repository):
    seconds = {"tests/lib/test_low.py": 9.0, "tests/other/test_helped.py": 3.0}
    changed = ["lib/low.py", "tests/other/test_helped.py"]
    chosen, left = choose(Imports(repository), changed, seconds, max_seconds=4.0)
    assert chosen[:2] == ["tests/other/test_helped.py", "tests/other/test_direct.py"]
    assert left[0] == "tests/lib/test_low.py"


def test_read_seconds__are_those_of_the_last_runs(repository):
    assert read_seconds(repository) == {}
    folder = repository / ".pytest_cache" / "v"
    folder.mkdir(parents=True)
    (folder / "seconds").write_text(
        '{"tests/test_a.py::test_x": 1.0, "tests/test_a.py::test_y[1]": 2.5}'
    )
    assert read_seconds(repository) == {"tests/test_a.py": 3.5}


def test_list_changed__since_a_revision_with_what_is_new_and_what_is_gone(repository):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert list_changed(repository, "HEAD") == []
    (repository / "lib" / "low.py").rename(repository / "lib" / "moved.py")
    (repository / "lib" / "high.py").write_text("")
    assert list_changed(repository, "HEAD") == ["lib/high.py", "lib/low.py", "lib/moved.py"]
    git("add", ".")
    git("commit", "-m", "second")
    assert list_changed(repository, "HEAD") == []
    assert list_changed(repository, "HEAD~1") == ["lib/high.py", "lib/low.py", "lib/moved.py"]


def test_imports__every_module_of_this_library_has_tests_near_it():
    imports = Imports(ROOT)
    shipped = [
        path.relative_to(ROOT).as_posix()
        for path in imports.paths.values()
        if path.is_relative_to(ROOT / "pmflib") and path.name != "__init__.py"
    ]
    assert len(shipped) > 100
    assert [path for path in shipped if not choose(imports, [path], {})[0]] == []
