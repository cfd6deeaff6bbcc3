"""Decides whether a query may run: by what the server's own parser and planner say that it is, never by its words.

The server is asked with EXPLAIN, which executes nothing. Its answer is a kind (`r` for a read) and the plan's operators;
both must be on the lists below, which name what is allowed, since a later server may know clauses that no list of
forbidden ones has. What the server would let pass as plain reads is found in the query's tokens: a second EXPLAIN or
PROFILE, options that change what comes back, USE, and functions that aren't the server's own. And since plans hide some
of what runs inside expressions, clauses that reach beyond the graph are looked for in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from lib.graph.errors import QueryError, QueryFailed, Refused

LONGEST_QUERY = 8_000  # characters; longer ones keep the planner busy for seconds
DEEPEST = 16  # levels of brackets, CASE, NOT and XOR; the parser's work doubles with each, and no time limit stops it

# Read-only, quick, and about this graph alone. Others reach into the server: killing connections, listing settings,
# emptying its caches.
PROCEDURES = (
    "db.labels",
    "db.relationshipTypes",
    "db.propertyKeys",
    "db.schema.visualization",
    "db.schema.nodeTypeProperties",
    "db.schema.relTypeProperties",
    "db.index.fulltext.queryNodes",
    "db.index.fulltext.queryRelationships",
    "db.index.vector.queryNodes",
    "db.index.vector.queryRelationships",
)
# The names are those that EXPLAIN uses, without what stands in brackets or behind @.
OPERATORS = re.compile(
    r"\w*(?:Scan|Seek|SeekByRange|IndexSearch|Lookup|Join|Expand|ShortestPaths?|CountFromCountStore|BFS)"
    r"|(?:Anti|Conditional|AntiConditional|RollUp)?Apply|(?:Let)?(?:Anti|SelectOr|SelectOrAnti)?SemiApply"
    r"|(?:Eager|Ordered|Partial)?(?:Aggregation|Distinct|Union|Sort|Top)|Top1WithTies|(?:Exhaustive)?Limit|Skip"
    r"|(?:Bidirectional)?Repeat(?:Trail|Walk|Acyclic)?|Triadic\w+|Anti|Argument|AssertSame\w+|AtMostOneRow"
    r"|CacheProperties|CartesianProduct|Eager|EmptyResult|EmptyRow|ErrorPlan|Filter|NullifyMetadata|Optional"
    r"|PreserveOrder|ProduceResults?|ProjectEndpoints|Projection|RemoteBatchProperties\w*|Selection"
    r"|(?:Partitioned)?Unwind(?:Collection)?|NestedPlan\w+Expression"
)
# What reaches beyond the graph: its operators, its words one blank apart, and what is said about it.
REACHING = (
    (r"LoadCSV", r"\bload csv\b", "LOAD CSV is not allowed; the graph is all the data there is"),
    (
        r"Show\w+|Terminate\w+",
        r"\bterminate transactions?\b|\bshow (?:all|alias(?:es)?|built|constraints?|current|databases?|default|executable"
        r"|exist(?:s|ence)?|fulltext|functions?|graph|home|index(?:es)?|key|lookup|node|point|populated|privileges?"
        r"|procedures?|property|range|rel(?:ationship)?|roles?|servers?|settings?|supported|text|transactions?|unique"
        r"|uniqueness|users?|vector)\b",
        "SHOW and TERMINATE are not allowed; query the graph itself",
    ),
    (r"Transaction\w+", None, "IN TRANSACTIONS is not allowed; a subquery without it reads the same"),
    (r"\w*Administration\w*", None, "Administration commands are not allowed; only reading the graph is"),
)
# Without one of these words, nothing that a plan hides can be more than a read of the graph.
RISKY = frozenset(("call", "load", "show", "terminate"))
HIDDEN = (
    "A subquery with CALL inside the value that a property is compared with is not allowed; move it in front, with WITH"
)
CLOSES = {")": "(", "]": "[", "}": "{"}
# A name in any script, a text, a comment: enough to find words that are clauses. A text that never ends is one, too.
TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n\r]*|/\*.*?(?:\*/|\Z))|(?P<text>'(?:\\.|[^'\\])*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\Z))"""
    r"""|(?P<quoted>`(?:``|[^`])*(?:`|\Z))|(?P<number>\d+(?:\.\d+)?)|(?P<word>\w+)|(?P<sign>.)""",
    re.DOTALL,
)
ESCAPE = re.compile(r"\\(?:\\|u([0-9A-Fa-f]{4}))")
GOES_ON = re.compile(r"and|or|xor|in|is|contains|starts|ends|when|then|else|end")  # behind a variable called use
INTRODUCES = re.compile(  # words behind which a variable called use may stand
    r"with|return|distinct|as|by|case|when|then|else|and|or|xor|not|in|contains|where|unwind|filter|let|limit|skip|offset"
    r"|yield|on|all|any|none|single|of|to|is|optional|match|call"
)
OPERAND = re.compile(r"case|when|then|else|and|or|xor|not|in|contains|with|[^\w\s)\]}'\"`]")  # a value comes next
CLOCKS = re.compile(r"(?:date|time|datetime|localtime|localdatetime|(?:local|zoned)_(?:date)?time)")
CHANGING = re.compile(
    r"rand|randomuuid|timestamp|realtime|statement|transaction|truncate"
)  # the last of now, by default


class Token(NamedTuple):
    kind: str  # text, quoted, number, word or sign
    text: str

    def word(self) -> str:
        """The word in lower case; empty for all that can't be a clause."""
        return self.text.lower() if self.kind == "word" else ""


def tokens(query: str) -> list[Token]:
    """The query as the server reads it: \\uXXXX becomes its character first, blanks and comments vanish."""
    plain = ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[0], query)
    return [Token(m.lastgroup or "", m[0]) for m in TOKEN.finditer(plain) if m.lastgroup != "blank"]


def check_text(query: str, foreign: frozenset[str] = frozenset()) -> list[Token]:
    """What can be refused before the server is asked; returns the tokens.

    foreign: functions that aren't the server's own, in lower case. Raises Refused and QueryFailed.
    """
    if len(query) > LONGEST_QUERY:
        raise Refused(f"The query has {len(query):,} characters; at most {LONGEST_QUERY:,} are allowed")
    if not query.isascii():
        try:
            query.encode()
        except UnicodeEncodeError as e:
            raise QueryFailed(f"Half a character at offset {e.start}, which no text can hold", "syntax error") from None
    read = tokens(query)
    if (levels := depth(read)) > DEEPEST:
        raise Refused(f"The query is nested {levels} deep (brackets, CASE, NOT, XOR); at most {DEEPEST} are allowed")
    words = [token.word() for token in read]
    start = _behind_options(read)
    if "debug" in words[:start]:
        raise Refused("Debug options are not allowed; send the query itself")
    if start < len(read) and words[start] in ("explain", "profile"):
        raise Refused("EXPLAIN and PROFILE are not allowed; send the query itself")
    if any(token.text == ";" and later.text != ";" for token, later in pairwise(read)):
        raise Refused("Several statements are not allowed; send them one by one, without a semicolon")
    sentence = " ".join(token.word() or token.text[:1] for token in read)
    if any(word == "use" and _is_clause(read, i, start) for i, word in enumerate(words)):
        raise Refused("USE is not allowed; there is one graph, and it is chosen already")
    for _, clause, why in REACHING:
        if clause and re.search(clause, sentence):
            raise Refused(why)
    for procedure in _procedures(read):
        _check_procedure(procedure)
    if foreign and (called := foreign.intersection(_called(read))):
        raise Refused(f"The function {min(called)} is not allowed; the server's own functions are")
    return read


def check_plan(kind: str | None, plan: dict[str, Any] | None, read: list[Token]) -> None:
    """Raise Refused unless the server calls the query a read, made of allowed operators and procedures.

    kind, plan: `query_type` and `plan` of the summary of an EXPLAIN. read: the query's tokens.
    """
    unknown = None
    risky = any(_is_risky(read, at) for at in range(len(read)))
    for name, details, inside in _operators(plan or {}):
        if name.startswith("ProcedureCall"):
            _check_procedure(details.split("(")[0])
        elif not OPERATORS.fullmatch(name):
            for pattern, _, why in REACHING:
                if re.fullmatch(pattern, name):
                    raise Refused(why)
            unknown = name
        if risky and _hides(name, details, inside):
            raise Refused(HIDDEN)
    if kind != "r" or unknown or not plan:
        raise Refused(f"Only reading is allowed; this query would {f'run {unknown}' if unknown else 'write'}")


def depth(read: list[Token]) -> int:
    """The deepest nesting of brackets and CASE, the longest row of NOT or the number of XOR, whichever is most.

    Braces count twice: the planner's work for subqueries in subqueries grows faster.
    """
    deepest = row = exclusive = 0
    inside: list[str] = []
    held: Counter[str] = Counter()  # what is in `inside`, counted: a query of brackets alone must take no longer
    before = ""
    for at, token in enumerate(read):
        word = token.word() if before != "." else ""
        if word in ("case", "xor") and not _is_operator(read, at):
            word = ""
        bracket = token.text if token.kind == "sign" else ""
        if bracket in CLOSES.values() or word == "case":
            inside.append(bracket or word)
            held[inside[-1]] += 1
        elif bracket in CLOSES and held[CLOSES[bracket]]:
            closed = ""
            while closed != CLOSES[bracket]:
                held[closed := inside.pop()] -= 1
        elif word == "end" and inside[-1:] == ["case"] and not OPERAND.fullmatch(before):  # else it is a name
            held[inside.pop()] -= 1
        row = row + 1 if word == "not" else 0
        exclusive += word == "xor"
        deepest = max(deepest, len(inside) + held["{"], row, exclusive)
        before = token.text.lower()
    return deepest


def repeatable(read: list[Token]) -> bool:
    """Whether the same graph gives the same answer each time: no chance, no clock. False where that isn't sure."""
    for token, bracket, inside in zip(read, read[1:], [*read[2:], Token("sign", ")")], strict=False):
        name = token.text.strip("`").lower()
        now = CLOCKS.fullmatch(name) and bracket.text == "(" and inside.kind != "text"
        if now or CHANGING.fullmatch(name):
            return False
    return True


def again(verdict: QueryError | None) -> None:
    """Raise a remembered verdict, as an exception of its own."""
    if verdict is not None:
        raise type(verdict)(verdict.message, verdict.kind)


def _behind_options(read: list[Token]) -> int:
    """Index of the first token behind `CYPHER 25 name = value ...`."""
    at = 0
    while at < len(read) and read[at].word() == "cypher":
        at += 1
        while at < len(read):
            if read[at].kind == "number":
                at += 1
            elif at + 2 < len(read) and read[at + 1].text == "=":
                at += 3
            else:
                break
    return at


def _is_clause(read: list[Token], at: int, start: int) -> bool:
    """Whether the word at `at` is the clause USE: it opens a (sub)query or comes behind a value, and a name follows."""
    behind = read[at + 1] if at + 1 < len(read) else Token("sign", "")
    named = behind.kind in ("word", "quoted") and not GOES_ON.fullmatch(behind.word())
    if not named and behind.text != "(":
        return False
    before = [token.word() or token.text for token in read[max(0, at - 2) : at]]
    return (
        at == start
        or before[-1:] in (["{"], ["next"], ["then"], ["else"], ["union"])
        or before in (["union", "all"], ["union", "distinct"])
        or (before[-1] in ")]}" if read[at - 1].kind == "sign" else not INTRODUCES.fullmatch(before[-1]))
    )


def _is_operator(read: list[Token], at: int) -> bool:
    """Whether the word at `at`, CASE or XOR, is one, and no name: a value follows."""
    behind = read[at + 1] if at + 1 < len(read) else Token("sign", "")
    return behind.kind != "sign" or behind.text in "([{-+$"


def _is_risky(read: list[Token], at: int) -> bool:
    """Whether the word at `at` may be one of RISKY as a clause: it isn't in the place of a name."""
    before, behind = (read[i] if 0 <= i < len(read) else Token("sign", "") for i in (at - 1, at + 1))
    return (
        read[at].word() in RISKY
        and before.text not in ("(", ",", ".", ":", "[", "|", "=")
        and (behind.kind in ("word", "quoted") or behind.text in ("(", "{"))
    )


def _procedures(read: list[Token]) -> Iterator[str]:
    """Every dotted name behind CALL."""
    for at, token in enumerate(read):
        name = ""
        for part in read[at + 1 :] if token.word() == "call" else ():
            follows = bool(name) and not name.endswith(".")  # a dot, that is; and a name where there is none yet
            if part.text != "." if follows else part.kind not in ("word", "quoted"):
                break
            name += part.text.strip("`")
        if "." in name[1:]:
            yield name


def _check_procedure(name: str) -> None:
    if name not in PROCEDURES:
        raise Refused(f"The procedure {name} is not allowed; allowed are {', '.join(PROCEDURES)}")


def _hides(name: str, details: str, inside: list[str]) -> bool:
    """Whether an operator's expressions have more plans of their own than are shown below it, as those of seeks do."""
    named = len(set(re.findall(r"\bnested_plan_\d+", details))) - name.startswith("NestedPlan")
    return named > sum(child.startswith("NestedPlan") for child in inside)


def _called(read: list[Token]) -> Iterator[str]:
    """Every dotted name in front of a bracket, in lower case."""
    name = ""
    for token in read:
        if token.kind in ("word", "quoted"):
            name = (name if name.endswith(".") else "") + token.text.strip("`").lower()
        elif token.text == "." and name and not name.endswith("."):  # two are a range, as in list[a..b]
            name += "."
        else:
            if token.text == "(" and name:
                yield name
            name = ""


def _operators(plan: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """(name, details, names of the operators right below) of every operator."""
    left = [plan] if plan else []
    while left:
        operator = left.pop()
        below = operator.get("children", [])
        left += below
        names = [part["operatorType"].split("@")[0].split("(")[0] for part in (operator, *below)]
        yield names[0], str(operator.get("args", {}).get("Details", "")), names[1:]
