"""`make demo` runs to its end, with and without a terminal."""

from pathlib import Path

from tests.support.program import run

DEMO = ("-m", "examples.tour")


def test_the_demo_runs_in_a_pipe() -> None:
    shown = run(program=DEMO).stdout
    for line in (
        "→ stored clip:kick-off at revision 2",
        "→ in order: ['Kick-off', 'What a goal!']",
        "  - idx:clip:second:000754:goal",
        "  + idx:clip:second:000748:goal  1",
        "→ Another record holds this value. (index='idx:clip:title:{title:norm}', "
        "key='idx:clip:title:what a goal!', holder='goal', value={'title': 'what a goal!'})",
        "→ after 29 seconds: goal",
        "→ after 30 seconds: None",
        "    template  idx:clip:tag:{tag:norm}:{id}",
        "→ missing: idx:clip:tag:goal:goal (clip:goal should have it)",
        "→ migrated: [('List clips by viewer.', 2)]",
        "→ by Ada: ['clip:goal']",
        "The file has been deleted; pass a folder to keep it.",
    ):
        assert line in (each.rstrip() for each in shown.splitlines()), line
    assert "\x1b" not in shown


def test_the_demo_leaves_its_file_in_a_given_folder(tmp_path: Path) -> None:
    shown = run(str(tmp_path / "kept"), program=DEMO).stdout
    assert (tmp_path / "kept" / "clips.db").is_file()
    assert str(tmp_path / "kept" / "clips.db") in shown
    again = run(str(tmp_path / "kept"), program=DEMO, code=1)
    assert "exists: choose an empty folder" in again.stderr


def test_the_demo_prints_its_usage() -> None:
    assert "usage:" in run("--fast", program=DEMO, code=1).stderr
