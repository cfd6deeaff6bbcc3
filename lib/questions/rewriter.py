"""Lets a language model put generated questions into other words, kept only where they say the query's values and no other: an option, off by default.

What is checked is what can be: a value that is lost, doubled or added. A rewriting that says "below" for "above" passes, so
both wordings are kept in each question's line, to be read side by side. Hints and demonstrations keep the generator's words.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tqdm import tqdm

from lib.questions.audit import variety
from lib.questions.draw import Slots
from lib.questions.structures import SLOT
from lib.questions.supply import Line
from lib.questions.wording import says, spoken_value

PROMPT = """Rewrite the question below as another person would ask it. It must mean exactly the same. Keep every name, number \
and date as it is written, each as often as it stands there, and add no other. Answer with the rewritten question alone, in \
one line, without quotation marks.

{question}"""
MOST_TOKENS = 160  # of an answer; the longest questions have about half as many
AT_ONCE = 8  # calls of an endpoint
TRIES, PAUSE, LONGEST_PAUSE = 6, 2.0, 60.0  # seconds before the second try, doubled before each further one
PATIENCE = 120.0  # seconds without a byte
CHARACTERS = 4  # a token, about
KEY, SPEND = "OPENAI_API_KEY", "ALLOW_SPEND"
HERE = ("localhost", "127.0.0.1", "::1")
BUSY = (408, 409, 425, 429)  # and all from 500: said of the moment, not of what was asked
EMPTY, CUT, LINES = "no words", "cut off at the longest answer", "more than one line"
LOST, ADDED = "a value lost, altered or said again", "a number or sign that the query has not"


class RewriterError(RuntimeError):
    """The model can't be asked, or doesn't answer; the message says why and the way out. Never a refused wording."""


@dataclass(frozen=True)
class Answer:
    text: str
    cut: bool  # the model was stopped before it had ended


class Model(Protocol):
    """Answers one prompt, always in the likeliest words. identity: what the answers hang on beside the prompt."""

    identity: str
    place: str  # in words
    at_once: int

    def ask(self, prompt: str) -> Answer: ...


def rewriter(settings: dict[str, str] | None, work: Path) -> Rewriter | None:
    """What `questions.rewriter` asks for: {model, url}, or None for nothing. Answers are kept in `work`.

    Raises RewriterError for a folder without a model, an endpoint without a key, or one elsewhere that wasn't allowed.
    """
    if settings is None:
        return None
    name, url = settings["model"], settings["url"]
    return Rewriter(Endpoint(name, url) if url else Local(name), settings, work / "rewriter.jsonl")


class Rewriter:
    """Asks a model about whole files of questions, and judges what comes back."""

    def __init__(self, model: Model, settings: dict[str, str], kept: Path):
        self._model, self._settings, self._answers = model, settings, _Answers(kept)

    def rewrite(self, files: dict[str, list[Line]], slots: Callable[[Line], Slots]) -> dict[str, Any]:
        """Give each line `question_as_generated`, and as `question` the model's words where they pass `fault`.

        files: lines by file; they are changed in place, so that a file drawn from another has the same words. slots: the
        values of a line's query. Returns what the summary says of it. Raises RewriterError for a service that stays away;
        what it answered until then is kept and not asked again.
        """
        lines = [q for some in files.values() for q in some]
        answers = self._asked([PROMPT.format(question=q["question"]) for q in lines])
        kept, refused = 0, Counter[str]()
        for q, answer in zip(lines, answers, strict=True):
            q["question_as_generated"] = generated = q["question"]
            if why := fault(answer, generated, slots(q)):
                refused[why] += 1
            else:
                q["question"] = answer.text.strip()
                kept += q["question"] == generated
        return {
            "rewriter": {
                **self._settings,
                "questions": len(lines),
                "rewritten": len(lines) - refused.total() - kept,
                "given back as they were": kept,
                "refused": dict(sorted(refused.items())),
            },
            "words": variety([q["question"] for q in lines]),
            "words as generated": variety([q["question_as_generated"] for q in lines]),
        }

    def _asked(self, prompts: list[str]) -> list[Answer]:
        """An answer for each prompt, in their order, from the kept ones where they are there."""
        keys = [_key(self._model.identity, prompt) for prompt in prompts]
        missing = {k: p for k, p in zip(keys, prompts, strict=True) if k not in self._answers.found}
        if missing:
            tokens = sum(len(p) for p in missing.values()) // CHARACTERS
            print(
                f"{len(missing):,} calls of {self._model.place}: about {tokens:,} tokens of prompts and at most "
                f"{len(missing) * MOST_TOKENS:,} of answers; {len(set(keys)) - len(missing):,} answers are known",
                file=sys.stderr,
            )
        with ThreadPoolExecutor(self._model.at_once) as pool:
            try:
                asked = pool.map(lambda key: self._answers.keep(key, self._model.ask(missing[key])), missing)
                for _ in tqdm(asked, desc="rewriting", total=len(missing)):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [self._answers.found[key] for key in keys]


def _key(identity: str, prompt: str) -> str:
    return hashlib.sha256(json.dumps([identity, prompt, MOST_TOKENS]).encode()).hexdigest()


class _Answers:
    """A file of answers that grows by whole lines, so that a killed run pays nothing twice."""

    def __init__(self, path: Path):
        self._path, self._lock = path, threading.Lock()
        self.found: dict[str, Answer] = {}
        whole, _, broken = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
        for line in map(json.loads, whole.splitlines()):
            self.found[line["key"]] = Answer(line["text"], line["cut"])
        if broken:  # by a kill; the next line must not go on where it ends
            os.truncate(path, len(whole) + bool(whole))

    def keep(self, key: str, answer: Answer) -> None:
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(json.dumps({"key": key, "text": answer.text, "cut": answer.cut}).encode() + b"\n")
            self.found[key] = answer


# ---------------------------------------------------------------- what passes


def fault(answer: Answer, generated: str, slots: Slots) -> str | None:
    """Why an answer isn't asked in the place of the generated question, or None: by the rule that generated words keep
    (wording.says), each value as often as there, and nothing beside; and in one line."""
    text = answer.text.strip()
    if answer.cut:
        return CUT
    if not text:
        return EMPTY
    if len(text.splitlines()) > 1:
        return LINES
    wording, wanted = as_wording(text, slots), _slots(as_wording(generated, slots))
    if says(wording, wanted):
        return None
    return ADDED if _slots(wording) == wanted else LOST


def as_wording(text: str, slots: Slots) -> str:
    """The inverse of wording.fill_words: slots where a question says their values, the longest first, never inside of a
    word or a number."""
    said = {spoken_value(name.rstrip("0123456789"), slot["value"]): f"{{{name}}}" for name, slot in slots.items()}
    longest = "|".join(map(re.escape, sorted(said, key=len, reverse=True)))
    whole = rf"(?<![\w-])(?<!\d[.,])(?:{longest})(?!-?\w)(?![.,]\d)"
    return re.sub(whole, lambda m: said[m[0]], text) if said else text


def _slots(wording: str) -> tuple[str, ...]:
    return tuple(sorted(m[1] for m in SLOT.finditer(wording)))


# ---------------------------------------------------------------- models


class Local:
    """A model of this machine, in the form of Hugging Face's transformers. One prompt at a time: in a batch the company
    would change the rounding, and with it a word."""

    at_once = 1

    def __init__(self, folder: str):
        self.place, path = f"the model in {folder}", Path(folder)
        if not (path / "config.json").is_file():
            raise RewriterError(
                f"questions.rewriter.model = {folder!r} is no folder of a model (it needs a config.json); for a model at an "
                "endpoint set questions.rewriter.url"
            )
        # seconds to import, which only this option is worth
        from torch import cuda
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype="auto", local_files_only=True)
            self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError, KeyError) as e:
            raise RewriterError(f"questions.rewriter.model = {folder!r} can't be loaded: {e}") from e
        if not self._tokenizer.chat_template:
            raise RewriterError(f"The model in {folder} has no chat template: choose one that follows instructions")
        self._model = model.to("cuda" if cuda.is_available() else "cpu").eval()
        self.identity = _digest(path)

    def ask(self, prompt: str) -> Answer:
        given = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
            enable_thinking=False,  # templates without it don't mind
        )
        tokens, mask = (given[name].to(self._model.device) for name in ("input_ids", "attention_mask"))
        likeliest = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        found = self._model.generate(tokens, attention_mask=mask, **likeliest, max_new_tokens=MOST_TOKENS)
        new = found[0, tokens.shape[1] :]
        return Answer(self._tokenizer.decode(new, skip_special_tokens=True), len(new) == MOST_TOKENS)


def _digest(folder: Path) -> str:
    """Hash of a folder's files: another model in the same place gives other answers."""
    hash_ = hashlib.sha256()
    for file in sorted(f for f in folder.iterdir() if f.is_file()):
        with file.open("rb") as content:
            hash_.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return hash_.hexdigest()


class _Passing(Exception):
    """A fault that another try may not meet. seconds: to wait for it, where the service says so."""

    def __init__(self, what: object, seconds: float = 0.0):
        super().__init__(str(what))
        self.seconds = seconds


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key is for the endpoint that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Endpoint:
    """A model behind an address that speaks the protocol of OpenAI's chat completions."""

    at_once = AT_ONCE

    def __init__(self, name: str, url: str):
        self.place = self.identity = f"{name} at {url}"
        self._name, self._url = name, f"{url.rstrip('/')}/chat/completions"
        here = urlsplit(url).hostname in HERE
        if not here:
            _check_allowed(url)
        self._key = os.environ.get(KEY, "")
        if not re.fullmatch("[!-~]+", self._key):  # else the error of what sends it would show it
            raise RewriterError(
                f"The endpoint {url} wants a key: set the environment's {KEY}, letters, digits and signs without a space (a "
                "server of your own that asks for none takes any)"
            )
        handlers = [urllib.request.ProxyHandler({})] if here else []  # which would look for localhost elsewhere
        self._opener = urllib.request.build_opener(_Stay, *handlers)

    def ask(self, prompt: str) -> Answer:
        body = {
            "model": self._name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
        }
        seconds, last = PAUSE, ""
        for attempt in range(1, TRIES + 1):
            try:
                return self._answer(json.dumps(body).encode())
            except _Passing as e:
                last = str(e)
                if attempt < TRIES:
                    time.sleep(min(max(seconds, e.seconds), LONGEST_PAUSE))
            seconds *= 2
        raise RewriterError(
            f"{self.place} gave no answer in {TRIES} tries ({last}). Those that it gave are kept: run the step again once it "
            "is well"
        )

    def _answer(self, body: bytes) -> Answer:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            with self._opener.open(urllib.request.Request(self._url, body, headers), timeout=PATIENCE) as found:
                choice = json.loads(found.read())["choices"][0]
                return Answer(choice["message"]["content"] or "", choice.get("finish_reason") not in (None, "stop"))
        except urllib.error.HTTPError as e:
            with e:
                raise self._refused(e) from None
        except (OSError, HTTPException) as e:
            raise _Passing(e) from None
        except (ValueError, LookupError, TypeError) as e:
            raise _Passing(f"an answer in another form: {type(e).__name__} {e}") from None

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        """What an answer of another status means; none that names the key is repeated to anybody."""
        if error.code in BUSY or error.code >= 500:
            wait = error.headers.get("Retry-After", "")
            return _Passing(f"status {error.code}", float(wait) if wait.isdecimal() else 0.0)
        if error.code in (401, 403):
            return RewriterError(f"{self.place} doesn't accept the key in {KEY} (status {error.code})")
        if error.code < 400:
            to = error.headers.get("Location", "elsewhere")
            return RewriterError(
                f"{self.place} sends the call on to {to}: set questions.rewriter.url to where it belongs"
            )
        said = ""
        with suppress(OSError, HTTPException):
            said = " ".join(error.read(2000).decode(errors="replace").split()).replace(self._key, "[the key]")
        return RewriterError(f"{self.place} refuses the call (status {error.code}): {said[:300] or error.reason}")


def _check_allowed(url: str) -> None:
    """Raises RewriterError for an endpoint elsewhere that isn't encrypted, or that the user hasn't allowed to cost."""
    if urlsplit(url).scheme != "https":
        raise RewriterError(f"questions.rewriter.url = {url!r} would send the key unencrypted: use https")
    try:
        allowed = float(os.environ.get(SPEND, "0"))
    except ValueError:
        allowed = 0.0
    if not 0 < allowed < float("inf"):
        raise RewriterError(
            f"questions.rewriter.url = {url!r} is not this machine, and may cost: allow it with {SPEND}=<US dollars> in the "
            "environment. Prices aren't known here: each question is asked once, and how many calls and tokens that is gets "
            "printed before the first"
        )
