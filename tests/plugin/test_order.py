"""In which order tests run: few engine starts, shared fixtures set up once, orders of others kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.project import Project

ON_TWO = """
    import pytest

    A, B = pytest.mark.llm_backend("scripted"), pytest.mark.llm_backend("scripted2")
"""
MODULE = """
import pathlib
import pytest

@pytest.fixture(scope="{scope}", autouse=True)
def shared(request):
    with open(request.config.rootpath / "shared.log", "a") as log: log.write("{name}\\n")

class TestIt:
    @pytest.mark.llm_backend("scripted")
    def test_a(self, llm_client): llm_client.generate("x")

    def test_plain(self): pass

    @pytest.mark.llm_backend("scripted2")
    def test_b(self, llm_client): llm_client.generate("x")
"""


def order(project: Project, *arguments: str) -> list[str]:
    """The tests in the order in which they would run."""
    result = project.run("--collect-only", "-q", *arguments)
    return [line.rpartition("::")[2] for line in result.outlines if "::" in line]


@pytest.mark.parametrize("scope", ["module", "class"])
def test_a_shared_fixture_is_set_up_once(project: Project, scope: str) -> None:
    """Modules on two engines stay whole; the second begins with the engine that is alive."""
    for name in ("test_one", "test_two"):
        project.pytester.makepyfile(**{name: MODULE.format(scope=scope, name=name)})
    project.run().assert_outcomes(passed=6)
    assert (project.path / "shared.log").read_text().split() == ["test_one", "test_two"]
    starts = [line for line in project.engine_log if line.startswith("start")]
    assert starts == ["start scripted", "start scripted2", "start scripted"]


def test_a_package_fixture_keeps_its_folder_together(project: Project) -> None:
    """A fixture of package scope in a conftest of a folder holds the modules there together."""
    for folder in ("one", "two"):
        for name, backend in (("a", "scripted"), ("b", "scripted2")):
            path = project.pytester.mkdir(folder) if name == "a" else project.path / folder
            (path / f"test_{folder}_{name}.py").write_text(
                f"import pytest\n@pytest.mark.llm_backend('{backend}')\n"
                f"def test_{folder}_{name}(llm_client): pass\n"
            )
        (path / "__init__.py").touch()
        (path / "conftest.py").write_text(
            "import pytest\n@pytest.fixture(scope='package', autouse=True)\ndef whole(): pass\n"
        )
    assert order(project) == ["test_one_a", "test_one_b", "test_two_b", "test_two_a"]


def test_inside_a_shared_fixture_tests_are_grouped_too(project: Project) -> None:
    """A module fixture holds the module together, not the order of the tests in it."""
    project.write(
        """
        import pytest

        @pytest.fixture(scope="module")
        def shared(): return "x"

        @pytest.mark.parametrize("n", range(2))
        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_backend("scripted2")
        def test_it(llm_client, shared, n): llm_client.generate(shared)
        """
    )
    project.run().assert_outcomes(passed=4)
    assert sum(line.startswith("start") for line in project.engine_log) == 2


def test_a_value_of_a_session_fixture_is_set_up_once(project: Project) -> None:
    """A parametrized fixture of the session goes once through its values, as pytest has ordered them."""
    project.write(
        ON_TWO
        + """
    @pytest.fixture(scope="session", params=["p", "q"])
    def value(request): return request.param

    @A
    def test_a(llm_client, value): pass

    @B
    def test_b(llm_client, value): pass
    """
    )
    assert order(project) == ["test_a[p]", "test_b[p]", "test_b[q]", "test_a[q]"]


def test_plain_tests_stay_where_they_are(project: Project) -> None:
    """Only tests on contended engines change places."""
    project.write(
        ON_TWO
        + """
    def test_1(): pass
    @A
    def test_2(llm_client): pass
    @B
    def test_3(llm_client): pass
    def test_4(): pass
    @A
    def test_5(llm_client): pass
    """
    )
    assert order(project) == ["test_1", "test_2", "test_5", "test_4", "test_3"]


@pytest.mark.parametrize("mark", ["order(1)", "dependency", "run(order=1)", "incremental"])
def test_the_order_of_another_plugin_is_kept(project: Project, mark: str) -> None:
    """Where a test bears the mark of an ordering plugin, that one has the say for all."""
    project.write(
        ON_TWO
        + f"""
    @A
    @pytest.mark.{mark}
    def test_1(llm_client): pass
    @B
    def test_2(llm_client): pass
    @A
    def test_3(llm_client): pass
    """
    )
    assert order(project, "-Wignore") == ["test_1", "test_2", "test_3"]


def test_tests_on_servers_keep_their_order(project: Project) -> None:
    """Engines that occupy no device here do not contend for one."""
    project.write(
        """
        import pytest

        ONE = pytest.mark.llm_backend("openai", model="m", url="http://127.0.0.1:9/v1")
        TWO = pytest.mark.llm_backend("openai", model="m", url="http://127.0.0.1:10/v1")

        @ONE
        def test_1(llm_client): pass
        @TWO
        def test_2(llm_client): pass
        @ONE
        def test_3(llm_client): pass
        """
    )
    assert order(project) == ["test_1", "test_2", "test_3"]


def test_grouping_can_be_switched_off(project: Project) -> None:
    """llmspeed_group_by_engine = false leaves the order alone."""
    project.write(
        ON_TWO
        + """
    @A
    def test_1(llm_client): pass
    @B
    def test_2(llm_client): pass
    @A
    def test_3(llm_client): pass
    """
    )
    assert order(project) == ["test_1", "test_3", "test_2"]
    assert order(project, "-o", "llmspeed_group_by_engine=false") == ["test_1", "test_2", "test_3"]
