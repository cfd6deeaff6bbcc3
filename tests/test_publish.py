"""What is published: pages that tell nothing of a machine or a person, and whose texts may go out; and only when told to."""

from __future__ import annotations

import subprocess

import pytest

from lib.files import write_json, write_text
from reports import publish

PLAN = {"settings": {"graph": {"source": "twin"}}, "human": {"questions": 0}}


@pytest.fixture()
def site(tmp_path):
    for name in ("index.html", "mine.html", "mine-figures.html"):
        write_text(tmp_path / "site" / name, "<p>fine: 14.5 points, MATCH (n) RETURN n.name</p>")
    write_json(tmp_path / "data" / "runs" / "mine" / "plan.json", PLAN)
    return tmp_path


def against(site, page="mine.html", **kind):
    return publish.problems(site / "site", site / "data", environment={}, **kind)[page]


def test_a_clean_site_may_go_out(site):
    found = publish.problems(site / "site", site / "data", environment={})
    assert set(found) == {"index.html", "mine.html", "mine-figures.html"} and not any(found.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (str(publish.ROOT), "path of this project"),
        ("see /home/somebody/study/x.json", "a path of a machine"),
        ("see C:\\Users\\somebody", "a path of a machine"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("gh" + "p_" + "a1" * 18, "a token"),
        ("AKIA" + "ABCDEFGH12345678", "an access key"),
        ("password = 'hunter2hunter2'", "a password"),
        ("password = &#39;hunter2hunter2&#39;", "a password"),
        ("bolt://neo4j:letmein@server", "an address with a password"),
    ],
)
def test_what_tells_too_much_is_held_back(site, text, reason):
    write_text(site / "site" / "mine.html", f"<p>{text}</p>")
    assert any(reason in one for one in against(site)), against(site)


def test_names_of_machine_and_user_and_secrets_of_the_environment_are_held_back(site, monkeypatch):
    monkeypatch.setattr(publish.socket, "gethostname", lambda: "hal-nine")
    monkeypatch.setattr(publish.getpass, "getuser", lambda: "davebowman")
    write_text(site / "site" / "mine.html", "made on hal-nine by davebowman with swordfish-1")
    found = publish.problems(site / "site", site / "data", environment={"NEO4J_PASSWORD": "swordfish-1"})["mine.html"]
    assert found == ["the name of this machine", "the name of a user", "the value of NEO4J_PASSWORD"]
    write_text(site / "site" / "mine.html", "hal-ninety, davebowmans")
    assert not publish.problems(site / "site", site / "data", environment={})["mine.html"]


def test_texts_of_a_dump_go_out_only_when_their_licence_was_read(site):
    write_json(
        site / "data" / "runs" / "mine" / "plan.json", {**PLAN, "settings": {"graph": {"source": "stackexchange"}}}
    )
    for page in ("mine.html", "mine-figures.html"):
        assert any("texts of source stackexchange" in one for one in against(site, page))
        assert not against(site, page, allowed=["stackexchange"])
    write_json(site / "data" / "runs" / "mine" / "plan.json", {**PLAN, "human": {"questions": 3}})
    assert any("texts of source people" in one for one in against(site)) and not against(site, allowed=["people"])


def test_a_page_of_an_unknown_run_is_held_back(site):
    write_text(site / "site" / "other.html", "<p>fine</p>")
    assert "can't be told whose texts" in against(site, "other.html")[0] and not against(site, "index.html")


def test_nothing_is_pushed_unless_told_and_clean(site, capsys, monkeypatch):
    pushed = []
    monkeypatch.setattr(publish, "push", lambda *given, **more: pushed.append(given) or "0" * 40)
    monkeypatch.setattr(publish, "private", lambda _: {})
    where = ["--site", str(site / "site"), "--data", str(site / "data")]
    publish.main(where)
    assert "Nothing was published" in capsys.readouterr().out and not pushed
    write_text(site / "site" / "mine.html", "see /home/somebody/x")
    with pytest.raises(SystemExit) as stop:
        publish.main([*where, "--push"])
    assert stop.value.code == 1 and "1 of 3 pages tell too much" in capsys.readouterr().err and not pushed
    publish.main([*where, "--push", "--leave-out", "mine.html"])
    assert [given[1] for given in pushed] == [["index.html", "mine-figures.html"]]
    with pytest.raises(SystemExit, match="1"):
        publish.main(["--site", str(site / "nowhere"), "--data", str(site / "data")])


def test_a_push_puts_pages_and_workflow_on_the_branch_and_leaves_the_tree_alone(site):
    def git(*arguments, cwd):
        return subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout

    here, there = site / "here", site / "there.git"
    git("init", "--quiet", "--bare", str(there), cwd=site)
    git("init", "--quiet", str(here), cwd=site)
    with pytest.raises(publish.PublishError, match="git remote get-url failed"):
        publish.push(site / "site", ["index.html"], here)
    git("config", "user.name", "test", cwd=here)
    git("config", "user.email", "test@localhost", cwd=here)
    git("remote", "add", "origin", str(there), cwd=here)
    for _ in range(2):  # again, over what is there
        pushed = publish.push(site / "site", ["index.html", "mine.html"], here)
    assert git("rev-parse", publish.BRANCH, cwd=there).strip() == pushed
    files = git("ls-tree", "-r", "--name-only", publish.BRANCH, cwd=there).split()
    assert files == [".github/workflows/pages.yml", "site/.nojekyll", "site/index.html", "site/mine.html"]
    assert git("status", "--short", cwd=here) == ""
