"""A rewritten question says its query's values and no others, or it isn't asked; a service's fault is nobody's refusal."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from lib.files import read_jsonl
from lib.questions import rewriter as module
from lib.questions.generate import generate, slots_of
from lib.questions.rewriter import (
    ADDED,
    CUT,
    EMPTY,
    LINES,
    LOST,
    MOST_TOKENS,
    PROMPT,
    TRIES,
    Answer,
    RewriterError,
    as_wording,
    fault,
    rewriter,
)
from lib.questions.structures import SLOT
from lib.questions.supply import SPLITS
from lib.questions.wording import fill_words
from tests import small_models

KEY = "sk-of-nobody"
SIZES = {"training": {"questions": 12, "structures": 8}, "most": 12}
LONG = "What I have been asking myself for a long while now is this: "  # a run of more than eight words
Reply = tuple[int, dict[str, str], bytes]


def value(kind: str, of: Any) -> dict[str, Any]:
    return {"value": of, "kind": kind}


def reply(text: str | None, reason: str = "stop") -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return 200, {}, json.dumps({"choices": [choice]}).encode()


def asked(body: dict[str, Any]) -> str:
    """The question that a call is about."""
    (message,) = body["messages"]
    assert message["content"].startswith(PROMPT.split("{")[0])
    return message["content"].rpartition("\n")[2]


class Service:
    """A real server at a port of this machine; `answers` says what it replies to a call's body."""

    def __init__(self, answers: Callable[[dict[str, Any]], Reply | None]):
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.calls.append(body)
                service.headers.append(dict(self.headers))
                found = answers(body) if self.path == "/v1/chat/completions" else (404, {}, b"")
                if found is None:  # hang up without a word
                    self.close_connection = True
                    return
                status, headers, content = found
                self.send_response(status)
                for name, text in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.settings = {"model": "someone", "url": f"http://127.0.0.1:{self.server.server_address[1]}/v1"}


@contextmanager
def service(answers: Callable[[dict[str, Any]], Reply | None]) -> Iterator[Service]:
    running = Service(answers)
    thread = threading.Thread(target=running.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.KEY, KEY)
    monkeypatch.delenv(module.SPEND, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # calls of this machine's own servers never go there
    monkeypatch.setattr(module, "PAUSE", 0.001)


SLOTS = {
    "name": value("name", "Ann Lee"),
    "tag": value("tag", "r"),
    "xnumber": value("xnumber", 12500),
    "xday": value("xday", "2012-03-05"),
}
GENERATED = "How many questions tagged r by Ann Lee had more than 12,500 views after March 5, 2012?"
GOOD = "After March 5, 2012, how many questions of Ann Lee's with the tag r got over 12,500 views?"
REFUSED = {
    GOOD.replace(" with the tag r", ""): LOST,
    GOOD.replace("Ann Lee", "Ann"): LOST,
    GOOD.replace("tag r", "tag r-squared"): LOST,
    GOOD.replace("12,500", "112,500"): LOST,
    GOOD.replace("12,500", "12500"): LOST,
    GOOD.replace("March 5, 2012", "March 2012"): LOST,
    GOOD + " Ann Lee's?": LOST,
    GOOD.replace("?", " at least 3 times?"): ADDED,
    GOOD.replace("over", "<"): ADDED,
    GOOD.replace(", how", ",\nhow"): LINES,
    " \n": EMPTY,
}


def question(number: int, text: str = GENERATED) -> dict[str, Any]:
    return {"id": f"train-{number}", "question": text, "hint": "a view refers to viewCount", "rows": [[number]]}


# ---------------------------------------------------------------- what passes


def test_what_says_the_same_values_passes():
    assert fault(Answer(f"  {GOOD}\n", False), GENERATED, SLOTS) is None
    assert fault(Answer(GENERATED, False), GENERATED, SLOTS) is None
    assert fault(Answer(GOOD, True), GENERATED, SLOTS) == CUT


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_says_others_is_refused_by_its_reason(text: str, why: str):
    assert fault(Answer(text, False), GENERATED, SLOTS) == why


def test_a_value_that_is_an_ordinary_word_too_is_said_as_often():
    slots = {"tag": value("tag", "question")}
    generated = "Which question is tagged question?"
    assert fault(Answer("Tell me which question has the tag question.", False), generated, slots) is None
    assert fault(Answer("Which question is it?", False), generated, slots) == LOST


names = st.text(st.sampled_from("abcXY z.+'"), min_size=1, max_size=8).map(str.strip).filter(bool)
values = st.fixed_dictionaries(
    {
        "name": names,
        "tag2": names,
        "xnumber": st.integers(0, 10**6) | st.floats(0.1, 99).map(lambda x: round(x, 1)),
        "xyear": st.integers(2000, 2020),
        "xid": st.integers(1, 10**6),
        "xday": st.dates().filter(lambda d: d.year > 999).map(str),
    }
)


@given(values, st.permutations(["name", "tag2", "xnumber", "xyear", "xid", "xday"]), st.integers(0, 5))
def test_the_generator_s_words_pass_and_without_a_value_they_don_t(found, order, lost):
    slots = {name: value(name.rstrip("2"), of) for name, of in found.items()}
    wording = "Of {%s}, say {%s}; {%s}, then {%s}: {%s} and {%s}?" % tuple(order)  # noqa: UP031
    generated = fill_words(wording, slots)
    assert len(SLOT.findall(as_wording(generated, slots))) == len(order)
    assert fault(Answer(generated, False), generated, slots) is None
    without = fill_words(wording.replace(f"{{{order[lost]}}}", "it"), slots)
    assert fault(Answer(without, False), generated, slots) == LOST


# ---------------------------------------------------------------- an endpoint


def rewritten(settings: dict[str, str], work: Path, lines: list[dict]) -> dict[str, Any]:
    found = rewriter(settings, work)
    assert found is not None
    return found.rewrite({"train": lines}, lambda q: SLOTS)


def test_both_wordings_are_kept_and_refusals_counted(tmp_path):
    texts = [GOOD, *REFUSED, GENERATED]
    lines = [question(i, f"{GENERATED}{'?' * (len(texts) - 1 - i)}") for i in range(len(texts))]
    before = copy.deepcopy(lines)
    answers = {q["question"]: text for q, text in zip(lines, texts, strict=True)}
    with service(lambda body: reply(answers[asked(body)])) as there:
        found = rewritten(there.settings, tmp_path, lines)
        assert {call["temperature"] for call in there.calls} == {0}
        assert {(call["model"], call["max_tokens"]) for call in there.calls} == {("someone", MOST_TOKENS)}
        assert {headers["Authorization"] for headers in there.headers} == {f"Bearer {KEY}"}
    told = found["rewriter"]
    assert told["questions"] == len(texts) and (told["rewritten"], told["given back as they were"]) == (1, 1)
    assert told["refused"] == {why: list(REFUSED.values()).count(why) for why in sorted({*REFUSED.values()})}
    for q, old, text in zip(lines, before, texts, strict=True):
        assert q.pop("question_as_generated") == old["question"]
        assert q["question"] == (old["question"] if text in REFUSED else text)
        assert {**q, "question": old["question"]} == old
    assert found["words"] != found["words as generated"]


def test_an_answer_that_was_stopped_or_not_given_is_refused(tmp_path):
    replies = [reply(GOOD, "length"), reply(None)]
    with service(lambda body: replies["??" in asked(body)]) as there:
        found = rewritten(there.settings, tmp_path, [question(0), question(1, GENERATED + "?")])
    assert found["rewriter"]["refused"] == {CUT: 1, EMPTY: 1}


def test_a_fault_of_the_service_is_tried_again(tmp_path):
    replies = [(429, {"Retry-After": "0"}, b""), (503, {}, b""), (200, {}, b"no JSON"), None, reply(GOOD)]
    with service(lambda body: replies.pop(0)) as there:
        found = rewritten(there.settings, tmp_path, [question(0)])
        assert len(there.calls) == 5
    assert found["rewriter"]["rewritten"] == 1


def test_a_service_that_stays_away_stops_the_step_and_what_it_answered_is_kept(tmp_path, capsys):
    lines = [question(i, f"{GENERATED}{'?' * i}") for i in range(6)]
    unwell = {lines[4]["question"]}
    with service(lambda body: (500, {}, b"") if asked(body) in unwell else reply(GOOD)) as there:
        with pytest.raises(RewriterError, match=f"{TRIES} tries \\(status 500\\)"):
            rewritten(there.settings, tmp_path, lines)
        assert all("question_as_generated" not in q for q in lines)  # no question is half done
        kept, calls = read_jsonl(tmp_path / "rewriter.jsonl"), len(there.calls)
        assert calls == len(kept) + TRIES and 4 <= len(kept) <= 5
        unwell.clear()
        assert rewritten(there.settings, tmp_path, lines)["rewriter"]["rewritten"] == 6
        assert len(there.calls) == calls + 6 - len(kept)
    assert "6 calls of someone at http://127.0.0.1" in capsys.readouterr().err


def test_what_was_answered_is_not_asked_again(tmp_path, capsys):
    lines = [question(i, f"{GENERATED}{'?' * i}") for i in range(5)] + [question(5)]
    again = copy.deepcopy(lines)
    with service(lambda body: reply(GOOD)) as there:
        rewritten(there.settings, tmp_path, lines[:3])
        assert len(there.calls) == 3
        kept = tmp_path / "rewriter.jsonl"
        kept.write_bytes(kept.read_bytes() + b'{"key": "cut o')  # as a kill leaves it
        rewritten(there.settings, tmp_path, again)
        assert len(there.calls) == 5
        first, both = kept.read_bytes(), copy.deepcopy(again)
        for q in again:
            q["question"] = q.pop("question_as_generated")
        rewritten(there.settings, tmp_path, again)
        assert len(there.calls) == 5 == len(read_jsonl(kept)) and kept.read_bytes() == first and again == both
        rewritten(there.settings | {"model": "another"}, tmp_path, [question(0)])
        assert len(there.calls) == 6
    assert "2 calls of someone at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {}, f"bad key {KEY}".encode()), f"doesn't accept the key in {module.KEY}"),
        ((404, {}, f"no model someone for {KEY}".encode()), r"\(status 404\): no model someone for \[the key\]"),
        ((302, {"Location": "http://127.0.0.1:1/stolen"}, b""), "sends the call on to http://127.0.0.1:1/stolen"),
    ],
)
def test_a_refused_call_stops_the_step_at_once_and_shows_no_key(tmp_path, capfd, answer, message):
    with service(lambda body: answer) as there:
        with pytest.raises(RewriterError, match=message) as error:
            rewritten(there.settings, tmp_path, [question(0)])
        assert len(there.calls) == 1
    assert KEY not in str(error.value) + "".join(capfd.readouterr())


@pytest.mark.parametrize("key", ["", "two words", "line\n", "clé"])
def test_without_a_key_nothing_is_asked(tmp_path, monkeypatch, key):
    monkeypatch.setenv(module.KEY, key)
    with pytest.raises(RewriterError, match=f"set the environment's {module.KEY}") as error:
        rewriter({"model": "someone", "url": "http://localhost:1/v1"}, tmp_path)
    assert not key or key not in str(error.value)


@pytest.mark.parametrize("allowed", [None, "", "0", "-1", "inf", "yes"])
def test_an_endpoint_elsewhere_is_asked_only_where_it_may_cost(tmp_path, monkeypatch, allowed):
    there = {"model": "someone", "url": "https://localhost.invalid/v1"}
    if allowed is not None:
        monkeypatch.setenv(module.SPEND, allowed)
    with pytest.raises(RewriterError, match=f"allow it with {module.SPEND}="):
        rewriter(there, tmp_path)
    monkeypatch.setenv(module.SPEND, "2.5")
    assert rewriter(there, tmp_path) is not None
    with pytest.raises(RewriterError, match="would send the key unencrypted"):
        rewriter(there | {"url": "http://localhost.invalid/v1"}, tmp_path)


# ---------------------------------------------------------------- a model of this machine


def test_a_small_model_s_words_are_refused_and_nothing_else_changes(tmp_path):
    folder = small_models.qwen3(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = {"model": str(folder), "url": ""}
    with pytest.raises(RewriterError, match="no chat template"):
        rewriter(settings, tmp_path)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %} assistant"
    tokenizer.save_pretrained(folder)
    lines = [question(i, f"{GENERATED}{'?' * i}") for i in range(3)]
    before = copy.deepcopy(lines)
    told = rewritten(settings, tmp_path / "one", lines)["rewriter"]
    assert lines == [{**q, "question_as_generated": q["question"]} for q in before]
    assert told == {
        **settings,
        "questions": 3,
        "rewritten": 0,
        "given back as they were": 0,
        "refused": told["refused"],
    }
    assert sum(told["refused"].values()) == 3
    rewritten(settings, tmp_path / "two", before)
    one, two = (tmp_path / name / "rewriter.jsonl" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()  # the same words again


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(RewriterError, match="is no folder of a model"):
        rewriter({"model": str(tmp_path), "url": ""}, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RewriterError, match="can't be loaded"):
        rewriter({"model": str(tmp_path), "url": ""}, tmp_path)


# ---------------------------------------------------------------- a set


@pytest.fixture(scope="module")
def made(uri, graph_folder, tmp_path_factory) -> Path:
    """A large set in the generator's words."""
    out = tmp_path_factory.mktemp("plain") / "set"
    generate(uri, SIZES | {"rewriter": None}, 0, out, graph_folder, "all")
    return out


def test_every_wording_of_the_generator_passes_its_own_check(made):
    templates = {line["id"]: line["query"] for line in read_jsonl(made / "structures.jsonl")}
    for q in (q for split in SPLITS for q in read_jsonl(made / f"{split}.jsonl")):
        slots = slots_of(templates[q["structure"]], q["query"])
        assert len(SLOT.findall(as_wording(q["question"], slots))) >= len(slots), q["question"]
        assert fault(Answer(q["question"], False), q["question"], slots) is None


def test_a_set_is_asked_and_audited_in_the_model_s_words(made, uri, graph_folder, tmp_path):
    with service(lambda body: reply(LONG + asked(body))) as there:
        summary = generate(uri, SIZES | {"rewriter": there.settings}, 0, tmp_path / "set", graph_folder, "all")
    everything = 0
    for name in (*SPLITS, "training"):
        plain, other = read_jsonl(made / f"{name}.jsonl"), read_jsonl(tmp_path / "set" / f"{name}.jsonl")
        for q, new in zip(plain, other, strict=True):
            assert new == {**q, "question": LONG + q["question"], "question_as_generated": q["question"]}
        everything += len(plain) if name != "training" else 0
    assert summary["rewriter"]["rewritten"] == summary["rewriter"]["questions"] == everything == len(there.calls)
    assert summary["words"]["share of the commonest first word"] == 1.0
    assert summary["words as generated"]["share of the commonest first word"] < 1.0
    assert summary["common"]["train and held_out_instances"]["a run of 8 words"] == 1.0
    for name in ("structures.jsonl", "demonstrations.jsonl"):
        assert (made / name).read_bytes() == (tmp_path / "set" / name).read_bytes()
    plain = json.loads((made / "summary.json").read_text())
    assert "rewriter" not in plain and plain["counts"] == summary["counts"]
