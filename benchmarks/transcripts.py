"""How long the page of transcripts takes to write, to open and to filter, in a real browser.

    python benchmarks/transcripts.py                    # 20,000 made-up episodes
    python benchmarks/transcripts.py --questions 500

Filter: from the change of a choice until the page is laid out anew, the largest and the median of many changes. A list of
the questions stands beside the one that is read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.files import write_jsonl, write_text
from reports import browser, transcripts
from tests.synthetic import answered, difficulty, question

ARMS, SAMPLES = ("base", "control", "trained-0", "trained-1"), 5
CHANGES = [("outcome", "form"), ("change", "better"), ("outcome", ""), ("change", "worse"), ("change", ""), ("text", "9"),
           ("text", "99"), ("text", ""), ("tier", "2 hops"), ("tier", ""), ("arm", "trained-1"), ("arm", "trained-0")]  # fmt: skip
TIMED = """changes => changes.map(([name, value]) => {
    const field = document.getElementById(name);
    const start = performance.now();
    field.value = value;
    field.dispatchEvent(new Event("input"));
    document.body.getBoundingClientRect();
    return performance.now() - start;
})"""


def make(data: Path, questions: int) -> None:
    """A run's files, as far as the page reads them."""
    asked = [question("held_out_instances", i) for i in range(questions)]
    for name in ("train", "dev", "held_out_structures"):
        write_jsonl(data / "questions" / f"{name}.jsonl", [])
    write_jsonl(data / "questions" / "held_out_instances.jsonl", asked)
    write_jsonl(data / "human" / "human.jsonl", [])
    run = data / "runs" / "many"
    write_text(run / "system_prompt.txt", "prompt\n")
    for arm in ARMS:
        lines = [answered(arm, one, i, difficulty(one)).line() for one in asked for i in range(SAMPLES)]
        write_text(run / "evaluate" / f"{arm}.jsonl", b"".join(lines).decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=1000, help=f"each has {len(ARMS) * SAMPLES} episodes")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser.running() as program:
        data, page = Path(folder), Path(folder) / "many-transcripts.html"
        make(data, chosen.questions)
        start = time.process_time()
        episodes = transcripts.write(data, "many", page)
        print(
            f"written: {episodes:,} episodes in {time.process_time() - start:.1f} s of CPU, page {page.stat().st_size:,} bytes"
        )
        with browser.page(program) as (shown, problems):
            shown.goto(browser.address(page, "q=held_out_instances-0000"))
            shown.wait_for_selector("#reader h2")
            opened = shown.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
            taken = [milliseconds for _ in range(10) for milliseconds in shown.evaluate(TIMED, CHANGES)]
        if problems:
            sys.exit("\n".join(problems))
    print(json.dumps({"open_ms": round(opened), "filter_median_ms": round(statistics.median(taken), 1),
                      "filter_largest_ms": round(max(taken), 1)}))  # fmt: skip


if __name__ == "__main__":
    main()
