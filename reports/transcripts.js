// Shows the transcripts of a run: filters over the index, and one question with two arms beside each other.
// All that is chosen stands in the address behind #, so that any view can be linked to. Every text reaches the page
// through textContent: what a model or a database said can't become markup.
"use strict";

const index = JSON.parse(document.getElementById("index").textContent);
const folder = `${index.run}-transcripts/`;
const LISTED = 50; // questions that are listed at first, and more at each press of the button
const REFERENCE_ROWS = 10; // shown of the reference before it is unfolded
const SIGNS = { s: "●", f: "◐", w: "○", t: "⊘", n: "–", e: "!" }; // of the outcomes, by their letters
const outcomeOf = Object.fromEntries(Object.entries(index.letters).map(([name, letter]) => [letter, name]));
const element = (id) => document.getElementById(id);

// --- what is chosen: the address ---

const ARMS = ["set", "arm", "beside"];
const FILTERS = ["outcome", "change", "tier", "structure", "text"];
const PLACES = ["q", "n", "m"]; // the question, and which answer of the arm and of the one beside it
const noFilter = Object.fromEntries(FILTERS.map((name) => [name, ""]));
let chosen = {};
let listed = LISTED;

/** Reads the address. `q` alone opens a question with the first training's last arm beside the control (or, where there is
 * none, beside its own first); with `arm`, that arm alone. */
function read() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const found = byId.get(given.q);
  const set = setOf(found?.set ?? given.set) ?? index.sets[0];
  const arms = set.arms.map(([name]) => name);
  const seed = arms.find((name) => name.startsWith("trained"))?.split("@")[0];
  const practised = arms.filter((name) => name.split("@")[0] === seed);
  const arm = arms.includes(given.arm) ? given.arm : (practised.at(-1) ?? arms[0]);
  const usual = given.arm ? "" : arms.includes("control") ? "control" : practised[0];
  const beside = [given.beside ?? usual].find((name) => arms.includes(name) && name !== arm) ?? "";
  const nothing = Object.fromEntries([...FILTERS, ...PLACES].map((name) => [name, ""]));
  chosen = { ...nothing, ...given, set: set.name, arm, beside };
}

/** The address of the present view with some choices changed; undefined leaves a choice to `read`. */
function address(changes) {
  const next = { ...chosen, ...changes };
  const kept = [...ARMS, ...FILTERS, ...PLACES].filter((name) => next[name] || (name === "beside" && next[name] === ""));
  return "#" + new URLSearchParams(kept.map((name) => [name, next[name]]));
}

// --- the index ---

const byId = new Map();
let position = 0;
for (const set of index.sets) {
  set.questions = set.questions.map(([id, words, structure, tier, answers]) => {
    const arms = answers.map((letters) => {
      const [sampled, ...rest] = letters.split(" ");
      const greedy = rest.join("");
      const right = sampled.split("s").length - 1;
      return { sampled, greedy, all: sampled + greedy, rate: sampled ? right / sampled.length : NaN };
    });
    const question = { id, words, structure, tier, arms, set: set.name, file: Math.floor(position++ / index.perFile) };
    question.search = `${id} ${words}`.toLowerCase();
    byId.set(id, question);
    return question;
  });
}
const setOf = (name) => index.sets.find((one) => one.name === name);
const wordsOf = (set, arm) => set.arms.find(([name]) => name === arm)[1];

const CHANGES = {
  better: ["more often right than beside", (here, there) => here.rate > there.rate],
  worse: ["less often right than beside", (here, there) => here.rate < there.rate],
  same: ["as often right as beside", (here, there) => here.rate === there.rate],
  never: ["never right, in any arm", (here, there, arms) => arms.every((arm) => !arm.all.includes("s"))],
  always: ["always right, in every arm", (here, there, arms) => arms.every((arm) => !/[^s]/.test(arm.all))],
};
const COMPARING = ["better", "worse", "same"];

/** Questions of the set that fit all that is chosen. */
function fitting() {
  const set = setOf(chosen.set);
  const [arm, beside] = [chosen.arm, chosen.beside].map((wanted) => set.arms.findIndex(([name]) => name === wanted));
  const letter = index.letters[chosen.outcome];
  const text = chosen.text.toLowerCase();
  const change = CHANGES[chosen.change]?.[1];
  return set.questions.filter(
    (one) =>
      (!chosen.tier || one.tier === chosen.tier) &&
      (!chosen.structure || one.structure === chosen.structure) &&
      (!text || one.search.includes(text)) &&
      (!letter || one.arms[arm].all.includes(letter)) &&
      (!change || (beside < 0 && COMPARING.includes(chosen.change) ? false : change(one.arms[arm], one.arms[beside], one.arms))),
  );
}

// --- small parts of the page ---

/** An element with text or elements in it; names of properties as in the DOM, `aria` and `data` as attributes. */
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  return children.length ? fill(made, ...children) : made;
}

/** Puts children in the place of those that an element has; null is none. */
function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null));
  return parent;
}

function code(pieces) {
  return make("pre", { className: "query" }, make("code", {}, ...pieces.map(([kind, text]) => (kind ? make("span", { className: kind, textContent: text }) : text))));
}

function tableOf(columns, rows, label) {
  const head = columns.length ? make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col", textContent: name })))) : null;
  const body = make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((text) => make("td", { textContent: text })))));
  return make("div", { className: "rows", tabIndex: 0, role: "group", "aria-label": label }, make("table", {}, head, body));
}

function fold(summary, ...children) {
  return make("details", {}, make("summary", { textContent: summary }), ...children);
}

const number = (value) => value.toLocaleString("en");
const plural = (value, word) => `${number(value)} ${word}${value === 1 ? "" : "s"}`;

// --- filters ---

function options(select, pairs, value) {
  const key = JSON.stringify(pairs);
  if (select.pairs !== key) fill(select, ...pairs.map(([name, words]) => make("option", { value: name, textContent: words })));
  select.pairs = key;
  select.value = value;
}

const distinct = (values) => [...new Set(values)].filter(Boolean).sort();

function showFilters() {
  const set = setOf(chosen.set);
  const same = (values) => values.map((value) => [value, value]);
  options(element("set"), index.sets.map((one) => [one.name, `${one.label} (${number(one.questions.length)})`]), chosen.set);
  options(element("arm"), set.arms, chosen.arm);
  options(element("beside"), [["", "nothing"], ...set.arms.filter(([name]) => name !== chosen.arm)], chosen.beside);
  options(element("outcome"), [["", "any"], ...Object.entries(index.words)], chosen.outcome);
  const changes = Object.entries(CHANGES).filter(([name]) => chosen.beside || !COMPARING.includes(name));
  options(element("change"), [["", "any"], ...changes.map(([name, [words]]) => [name, words])], chosen.change);
  options(element("tier"), [["", "any"], ...same(distinct(set.questions.map((one) => one.tier)))], chosen.tier);
  options(element("structure"), [["", "any"], ...same(distinct(set.questions.map((one) => one.structure)))], chosen.structure);
  if (element("text").value !== chosen.text) element("text").value = chosen.text;
  const starts = [
    ["All", {}],
    ["Where the arm is better", { change: "better" }],
    ["Where it is worse", { change: "worse" }],
    ["Never solved", { change: "never" }],
    ["Out of turns", { outcome: "wrong_turns" }],
    ["Wrong shape", { outcome: "form" }],
  ].filter(([, view]) => chosen.beside || !COMPARING.includes(view.change));
  fill(element("starts"), ...starts.map(([words, view]) => make("a", { href: address({ ...noFilter, q: "", n: "", m: "", ...view }), textContent: words })));
}

function choose(name) {
  const value = element(name).value;
  const changes = { [name]: value };
  if (ARMS.includes(name)) Object.assign(changes, { n: "", m: "" });
  if (name === "arm" && value === chosen.beside) changes.beside = chosen.arm;
  if (name === "set") Object.assign(changes, { ...noFilter, text: chosen.text, arm: undefined, beside: undefined, q: "" });
  history.replaceState(null, "", address(changes));
  listed = LISTED;
  show();
}

// --- the list ---

/** A question's answers as signs, with the same in words for those who don't see them. */
function strip(arm, words) {
  const signs = [...arm.sampled].map((letter) => make("span", { className: outcomeOf[letter], textContent: SIGNS[letter] }));
  const greedy = [...arm.greedy].map((letter) => make("span", { className: `${outcomeOf[letter]} greedy`, textContent: SIGNS[letter] }));
  const right = (letters) => `${letters.split("s").length - 1} of ${letters.length}`;
  const said = [arm.sampled && `${right(arm.sampled)} sampled`, arm.greedy && `${right(arm.greedy)} greedy`].filter(Boolean).join(", ");
  return make(
    "span",
    { className: "strip" },
    make("span", { className: "name", textContent: words }),
    make("span", { "aria-hidden": "true", className: "signs" }, ...signs, ...greedy),
    make("span", { className: "unseen", textContent: `: ${said || "no answer"} right. ` }),
  );
}

function row(question, set) {
  const shown = [chosen.beside, chosen.arm].filter(Boolean);
  const strips = shown.map((name) => strip(question.arms[set.arms.findIndex(([arm]) => arm === name)], wordsOf(set, name)));
  const about = [question.structure, question.tier].filter(Boolean).join(" · ");
  const link = make(
    "a",
    { href: address({ q: question.id, n: "", m: "" }) },
    make("span", { className: "words", textContent: question.words }),
    make("span", { className: "about", textContent: about }),
    make("span", { className: "strips" }, ...strips),
  );
  if (question.id === chosen.q) link.setAttribute("aria-current", "true");
  return make("li", {}, link);
}

let found = [];

function showList() {
  const set = setOf(chosen.set);
  found = fitting();
  const arm = set.arms.findIndex(([name]) => name === chosen.arm);
  const letter = index.letters[chosen.outcome];
  let answers = 0;
  for (const one of found) answers += letter ? one.arms[arm].all.split(letter).length - 1 : one.arms[arm].all.length;
  const kind = letter ? ` ${index.words[chosen.outcome]}` : "";
  element("count").textContent = `${number(found.length)} of ${plural(set.questions.length, "question")} fit, with ${plural(answers, "answer")}${kind}`;
  fill(element("list"), ...found.slice(0, listed).map((question) => row(question, set)));
  element("more").hidden = found.length <= listed;
  const here = element("list").querySelector("[aria-current]");
  if (here) element("listing").scrollTop = here.offsetTop - element("listing").clientHeight / 3;
}

// --- the question that is read ---

const files = new Map(); // number -> promise of its questions' records
const arrived = new Map(); // number -> what to do with them

globalThis.transcripts = (file, records) => arrived.get(file)(records); // called by the files

function load(file) {
  if (!files.has(file)) {
    const source = `${folder}${String(file).padStart(3, "0")}.js`;
    files.set(
      file,
      new Promise((resolve, reject) => {
        arrived.set(file, resolve);
        const missing = () => reject(new Error(`${source} can't be read: it must lie beside this page, in that folder.`));
        document.head.append(make("script", { src: source, onerror: missing }));
      }),
    );
  }
  return files.get(file);
}

/** Keeps the focus on the same place of a list of links while they are replaced. */
async function keepingFocus(replace) {
  const links = (nav) => [...nav.querySelectorAll("a")];
  const nav = document.activeElement.closest("#reader nav");
  const label = nav?.getAttribute("aria-label");
  const place = nav && links(nav).indexOf(document.activeElement);
  await replace();
  const same = label && document.querySelector(`#reader nav[aria-label="${CSS.escape(label)}"]`);
  if (same) links(same)[place]?.focus();
}

async function showReader() {
  const question = byId.get(chosen.q);
  document.body.classList.toggle("reading", Boolean(chosen.q));
  const reader = element("reader");
  if (!question) {
    const why = chosen.q ? `There is no question ${chosen.q} in this run.` : "Choose a question to read its answers.";
    fill(reader, make("p", { className: "hint", textContent: why }), legend());
    return;
  }
  const wanted = chosen.q;
  let record;
  try {
    record = (await load(question.file)).find((one) => one.id === question.id);
  } catch (problem) {
    fill(reader, make("p", { className: "failed", role: "alert", textContent: problem.message }));
    return;
  }
  if (chosen.q !== wanted) return; // another was chosen meanwhile
  const set = setOf(question.set);
  const panes = [["beside", "m"], ["arm", "n"]].filter(([field]) => chosen[field]);
  fill(
    reader,
    steps(),
    make("h2", { tabIndex: -1, textContent: record.question }),
    record.hint ? make("p", { className: "hint", textContent: `Hint: ${record.hint}` }) : null,
    make("p", { className: "about", textContent: [question.id, question.structure, question.tier, record.status].filter(Boolean).join(" · ") }),
    reference(record),
    everyArm(question, set),
    make("div", { className: "beside" }, ...panes.map(([field, place]) => pane(record, question, set, field, place))),
    fold("The prompt and the schema that every question begins with", make("pre", { textContent: index.prompt })),
  );
}

/** The way to the list, and to the questions before and after in it. */
function steps() {
  const at = found.findIndex((one) => one.id === chosen.q);
  const link = (words, question) => (question ? make("a", { href: address({ q: question.id, n: "", m: "" }), textContent: words }) : null);
  return make(
    "nav",
    { className: "steps", "aria-label": "Questions that fit" },
    make("a", { href: address({ q: "", n: "", m: "" }), textContent: "Back to the list", className: "back" }),
    at >= 0 ? link("Previous", found[at - 1]) : null,
    at >= 0 ? link("Next", found[at + 1]) : null,
    make("span", { textContent: at >= 0 ? `${number(at + 1)} of ${number(found.length)}` : "not among those that fit" }),
  );
}

function reference(record) {
  const label = "Reference rows";
  const first = tableOf([], record.rows.slice(0, REFERENCE_ROWS), label);
  const rest = record.rows.slice(REFERENCE_ROWS);
  const more = record.rowCount - record.rows.length;
  return make(
    "section",
    { className: "reference", "aria-label": "Reference" },
    make("h3", { textContent: `Reference: ${plural(record.rowCount, "row")}` }),
    record.query ? code(record.query) : null,
    record.rows.length ? first : null,
    rest.length ? fold(`${plural(rest.length, "more row")}`, tableOf([], rest, "More reference rows")) : null,
    more ? make("p", { className: "cut", textContent: `cut here: ${plural(more, "row")} more` }) : null,
  );
}

function everyArm(question, set) {
  const items = set.arms.map(([name, words], i) => {
    const link = make("a", { href: address({ arm: name, beside: name === chosen.beside ? chosen.arm : chosen.beside, n: "", m: "" }) }, strip(question.arms[i], words));
    if (name === chosen.arm) link.setAttribute("aria-current", "true");
    return question.arms[i].all ? make("li", {}, link) : null;
  });
  return make("nav", { "aria-label": "Every arm on this question" }, make("ul", { className: "arms" }, ...items));
}

/** One arm's answers: a link to each, and the one that is chosen, or else the first that has the wanted outcome. */
function pane(record, question, set, field, place) {
  const answers = record.arms[chosen[field]];
  const wanted = field === "arm" && chosen.outcome ? answers.findIndex(([, , , outcome]) => outcome === chosen.outcome) : 0;
  const at = Math.min(Math.max(chosen[place] === "" ? wanted : Number(chosen[place]) || 0, 0), answers.length - 1);
  const title = make("h3", { textContent: wordsOf(set, chosen[field]) });
  if (!answers.length) return make("section", { className: "pane" }, title, make("p", { textContent: "This arm was not asked this question." }));
  const links = answers.map(([sample, greedy, , outcome], i) => {
    const sign = SIGNS[index.letters[outcome]];
    const words = greedy ? "greedy" : `${sample + 1}`;
    const link = make("a", { href: address({ [place]: String(i) }), "aria-label": `${greedy ? "greedy answer" : `answer ${sample + 1}`}: ${index.words[outcome]}` });
    link.append(make("span", { className: outcome, textContent: sign }), ` ${words}`);
    if (i === at) link.setAttribute("aria-current", "true");
    return make("li", {}, link);
  });
  const [, , update, outcome, stored] = answers[at];
  const said = record.stored[stored];
  return make(
    "section",
    { className: "pane", "aria-label": wordsOf(set, chosen[field]) },
    title,
    make("nav", { "aria-label": `Answers of ${wordsOf(set, chosen[field])}` }, make("ul", { className: "answers" }, ...links)),
    update === null ? null : make("p", { className: "about", textContent: `in update ${update}` }),
    ...said.turns.map((one) => turn(one, record.stored)),
    judged(said, outcome, record.stored),
  );
}

function turn([role, text, queries, table, error], stored) {
  const name = { assistant: "model", tool: "database" }[role] ?? role;
  const shown = table === null ? null : stored[table];
  return make(
    "div",
    { className: `turn ${error ? "failed" : ""}` },
    make("p", { className: "role", textContent: name }),
    text ? make("p", { className: "said", textContent: text }) : null,
    ...queries.map((query) => code(stored[query])),
    shown ? make("p", { className: "head", textContent: shown.head }) : null,
    shown ? tableOf(shown.columns, shown.rows, "Rows that the model saw") : null,
    shown?.cut ? make("p", { className: "cut", textContent: "cut here: there are more rows" }) : null,
  );
}

function judged(said, outcome, stored) {
  const facts = said.verdict.map(([name, text]) => make("div", {}, make("dt", { textContent: name.replace("_", " ") }), make("dd", { textContent: text })));
  return make(
    "div",
    { className: "turn judged" },
    make("h4", {}, "Scored: ", make("span", { className: outcome, textContent: index.words[outcome] })),
    said.query === null ? make("p", { textContent: "No query ran without an error." }) : code(stored[said.query]),
    said.compared === null ? null : compared(stored[said.compared]),
    make("dl", {}, ...facts),
  );
}

/** The scored rows beside the reference rows: a mark and a word say where each row is. */
function compared(found) {
  const counts = Object.entries(found.counts).map(([mark, count]) => `${number(count)} ${index.marks[mark]}`);
  const kept = found.kept < found.total ? ` Of ${plural(found.total, "row")} returned, the first ${number(found.kept)} were kept.` : "";
  const told = make("p", { className: "head", textContent: `Rows beside the reference's: ${counts.join(", ") || "none on either side"}.${kept}` });
  if (!found.rows.length) return told;
  const wide = Math.max(...found.rows.map(([, cells]) => cells.length));
  const names = Array.from({ length: wide }, (_, i) => make("th", { scope: "col", textContent: found.columns[i] || `column ${i + 1}`, className: i < found.width ? "" : "beyond" }));
  const lines = found.rows.map(([mark, cells]) =>
    make(
      "tr",
      { className: { "=": "same", "−": "missing", "+": "surplus", "?": "unknown" }[mark] },
      make("th", { scope: "row" }, make("span", { "aria-hidden": "true", textContent: mark }), make("span", { className: "unseen", textContent: index.marks[mark] })),
      ...cells.map((text, i) => make("td", { textContent: text, className: i < found.width ? "" : "beyond" })),
    ),
  );
  const corner = make("th", { scope: "col" }, make("span", { className: "unseen", textContent: "where" }));
  const table = make("table", {}, make("thead", {}, make("tr", {}, corner, ...names)), make("tbody", {}, ...lines));
  const left = Object.values(found.counts).reduce((sum, count) => sum + count, 0) - found.rows.length;
  return make(
    "div",
    {},
    told,
    make("div", { className: "rows difference", tabIndex: 0, role: "group", "aria-label": "Scored rows beside reference rows" }, table),
    left ? make("p", { className: "cut", textContent: `cut here: ${plural(left, "row")} more` }) : null,
  );
}

function legend() {
  const signs = Object.entries(index.words).map(([outcome, words]) => make("li", {}, make("span", { className: outcome, textContent: SIGNS[index.letters[outcome]] }), ` ${words}`));
  return make("div", { className: "legend" }, make("p", { textContent: "Each sign is an answer; a framed one was greedy." }), make("ul", {}, ...signs));
}

// --- the page ---

/** Opens the page at what the address says; the list then reaches to the question that is read. */
function open() {
  read();
  listed = Math.max(LISTED, fitting().findIndex((one) => one.id === chosen.q) + 10);
  return show();
}

function show() {
  read();
  showFilters();
  showList();
  return keepingFocus(showReader);
}

for (const name of [...ARMS, ...FILTERS]) element(name).addEventListener("input", () => choose(name));
element("filters").addEventListener("submit", (event) => event.preventDefault());
element("more").addEventListener("click", () => {
  const first = listed;
  listed += LISTED;
  showList();
  element("list").children[first]?.firstChild.focus();
});
element("list").addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const next = step && event.target.closest("li")?.[step];
  if (next) {
    event.preventDefault();
    next.firstChild.focus();
  }
});
addEventListener("hashchange", async () => {
  const before = chosen.q;
  await open();
  if (chosen.q && chosen.q !== before) element("reader").querySelector("h2")?.focus();
  if (!chosen.q && before) element("list").querySelector(`a[href*="q=${CSS.escape(before)}"]`)?.focus();
});
open();
