"""The study's question structures as plain data: what is asked of the graph, and eight ways in which people ask it.

A structure is a Cypher template and eight wordings; both have slots such as {tag} or {name2}. A slot's kind is its name
without the digit (`KINDS` explains them). The queries keep to a small dialect, so that a small model can learn it: one
MATCH with one path, every node labelled where it first appears, one letter a variable (u, w users; q, r questions;
a answers; p other posts; c comments; v votes; h history; t tags; b badges), conditions joined by AND.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRAIN, DEV, HELD_OUT = range(5), range(5, 6), range(6, 8)  # which of the eight wordings belong to which split
NEW_COMBINATION, NEW_COMPONENT = "novel_combination", "novel_component"
SLOT = re.compile(r"\{(([a-z]+)\d?)\}")

KINDS = {
    "name": "a user's display name",
    "tag": "a tag's name",
    "badge": "a badge's name",
    "location": "where users say they live",
    "word": "a word of a question's title",
    "prefix": "the first letters of a tag's name",
    "date": "a day, as 2012-03-05",
    "year": "a year",
    "question": "a question's id",
    "score": "a score, whole number",
    "reputation": "a reputation of at most two significant digits",
    "count": "how many to list",
}


@dataclass(frozen=True)
class Structure:
    """id; Cypher template; wordings by index (0-4 train, 5 dev, 6-7 held out).

    held_out: why the whole structure is kept from training, or "" where it is trained on. ordered: the words ask for an
    order of the rows, so it may count when an answer is scored. hint: what the words refer to, with slots, or "".
    """

    id: str
    query: str
    wordings: tuple[str, ...]
    held_out: str = ""
    ordered: bool = False
    hint: str = ""

    @property
    def slots(self) -> dict[str, str]:
        """Slot -> kind, in the order of the query."""
        return {m[1]: m[2] for m in SLOT.finditer(self.query)}


STRUCTURES: tuple[Structure, ...] = (
    # ------------------------------------------------------------------------------------------------ no hop
    Structure(
        "user_reputation",
        "MATCH (u:User) WHERE u.displayName = '{name}' RETURN u.reputation",
        (
            "What is the reputation of {name}?",
            "How much reputation does {name} have?",
            "Tell me the reputation of the member {name}.",
            "Show how much reputation {name} has earned.",
            "Can you tell me the reputation of {name}?",
            "How high is the reputation of {name}?",
            "Please give the reputation of the user {name}.",
            "What reputation has {name} earned?",
        ),
    ),
    Structure(
        "reputation_websites",
        "MATCH (u:User) WHERE u.reputation > {reputation} AND u.websiteUrl IS NOT NULL RETURN count(*)",
        (
            "How many users with a reputation above {reputation} have a website?",
            "Count the people with more than {reputation} reputation who have a website.",
            "What is the number of members with a website and a reputation over {reputation}?",
            "How many people who earned more than {reputation} reputation have a website?",
            "I want to know how many users with over {reputation} reputation have a website.",
            "How many members with more than {reputation} reputation have a website?",
            "Count the users with a website whose reputation is above {reputation}.",
            "Tell me how many people with a website have over {reputation} reputation.",
        ),
    ),
    Structure(
        "joined_with_reputation",
        "MATCH (u:User) WHERE u.creationDate.year = {year} AND u.reputation > {reputation} RETURN u.displayName",
        (
            "Which users joined in {year} and have a reputation above {reputation}?",
            "List the members with more than {reputation} reputation who joined in {year}.",
            "Name the people who joined in {year} and earned over {reputation} reputation.",
            "Who joined the site in {year} and has more than {reputation} reputation?",
            "Please find users with a reputation over {reputation} who joined during {year}.",
            "Show the users that joined in {year} with a reputation above {reputation}.",
            "Who are the members with a reputation above {reputation} that joined in {year}?",
            "I want to see people who joined during {year} and have over {reputation} reputation.",
        ),
    ),
    Structure(
        "title_word_score",
        "MATCH (q:Question) WHERE q.title CONTAINS '{word}' AND q.score > {score} RETURN count(*)",
        (
            "How many questions mention the word {word} in the title and have a score above {score}?",
            "Count the questions with the word {word} in the title that scored over {score}.",
            "What is the number of questions with a score above {score} that mention {word} in the title?",
            "How many questions that scored more than {score} have the word {word} in the title?",
            "Give the number of questions scored over {score} whose title mentions {word}.",
            "Count questions whose title mentions the word {word} and whose score is above {score}.",
            "How many questions scored over {score} have a title that mentions the word {word}?",
            "Tell me how many questions scored more than {score} and mention {word} in the title.",
        ),
    ),
    Structure(
        "tags_by_prefix",
        "MATCH (t:Tag) WHERE t.tagName STARTS WITH '{prefix}' RETURN t.tagName",
        (
            "Which tags start with {prefix}?",
            "List all tags that begin with {prefix}.",
            "Show the tags whose name starts with {prefix}.",
            "What tags have a name that begins with {prefix}?",
            "Find every tag starting with {prefix}.",
            "Name all tags that start with {prefix}.",
            "Which tags have a name starting with {prefix}?",
            "Show every tag that begins with {prefix}.",
        ),
    ),
    Structure(
        "votes_since",
        "MATCH (v:Vote) WHERE v.creationDate >= date('{date}') RETURN count(*)",
        (
            "How many votes were cast since {date}?",
            "Count the votes cast on {date} or later.",
            "What is the number of votes since {date}?",
            "How many votes did users cast from {date} on?",
            "Can you give the number of votes cast since {date}?",
            "Count all votes since {date}.",
            "How many votes were there on {date} or later?",
            "I want to know the number of votes cast from {date} on.",
        ),
    ),
    Structure(
        "higher_reputation",
        "MATCH (u:User) WHERE u.displayName IN ['{name}', '{name2}'] "
        "RETURN u.displayName ORDER BY u.reputation DESC LIMIT 1",
        (
            "Who has more reputation, {name} or {name2}?",
            "Which of the users {name} and {name2} has the higher reputation?",
            "Between {name} and {name2}, who has the higher reputation?",
            "Who is ahead in reputation, {name} or {name2}?",
            "Who earned more reputation, {name} or {name2}?",
            "Which member has more reputation, {name} or {name2}?",
            "Tell me who has more reputation, {name} or {name2}.",
            "Between {name} and {name2}, which user is ahead in reputation?",
        ),
    ),
    Structure(
        "location_reputation",
        "MATCH (u:User) WHERE u.location = '{location}' AND u.reputation > {reputation} RETURN count(*)",
        (
            "How many users from {location} have a reputation above {reputation}?",
            "Count the people in {location} with more than {reputation} reputation.",
            "What is the number of members in {location} who earned over {reputation} reputation?",
            "How many people live in {location} and have more than {reputation} reputation?",
            "Give the number of users in {location} with a reputation over {reputation}.",
            "How many members from {location} have over {reputation} reputation?",
            "Count the users based in {location} whose reputation is above {reputation}.",
            "Tell me how many people in {location} have a reputation over {reputation}.",
        ),
        held_out=NEW_COMBINATION,
    ),
    # ------------------------------------------------------------------------------------------------ one hop
    Structure(
        "badges_in_order",
        "MATCH (u:User)-[e:EARNED]->(b:Badge) WHERE u.displayName = '{name}' RETURN b.name ORDER BY e.date",
        (
            "List the badges of {name} in the order they were earned.",
            "Which badges did {name} earn, from first to last?",
            "Show the badges that {name} holds, oldest first.",
            "What badges did {name} earn, in order of date?",
            "Give the badges earned by {name}, starting with the oldest.",
            "Name the badges of {name} from first to last.",
            "Show the badges earned by {name} in order of date.",
            "List every badge of {name}, oldest first.",
        ),
        ordered=True,
    ),
    Structure(
        "location_badge_holders",
        "MATCH (u:User)-[:EARNED]->(b:Badge) WHERE u.location = '{location}' AND b.name = '{badge}' "
        "RETURN DISTINCT u.displayName",
        (
            "Which users from {location} earned the badge {badge}?",
            "List the members who live in {location} and hold the {badge} badge.",
            "Name the people based in {location} with the badge {badge}.",
            "Who lives in {location} and has the {badge} badge?",
            "Show all holders of the badge {badge} located in {location}.",
            "Find the users in {location} that earned the {badge} badge.",
            "Who from {location} holds the badge {badge}?",
            "Name all members from {location} with the {badge} badge.",
        ),
    ),
    Structure(
        "questions_asked",
        "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = '{name}' RETURN count(*)",
        (
            "How many questions did {name} ask?",
            "Count the questions asked by {name}.",
            "What is the number of questions {name} has posted?",
            "How often did {name} ask a question?",
            "I want to know the number of questions posted by {name}.",
            "How many questions has {name} asked?",
            "Count all questions that {name} posted.",
            "Tell me how many questions {name} asked on the site.",
        ),
    ),
    Structure(
        "latest_question",
        "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = '{name}' "
        "RETURN q.title ORDER BY q.creationDate DESC LIMIT 1",
        (
            "What is the latest question of {name}?",
            "Which question did {name} ask last?",
            "Show the title of the latest question by {name}.",
            "Can you show me the title of the question {name} posted last?",
            "What was the last question asked by {name}?",
            "Give the title of the latest question {name} asked.",
            "Which question by {name} is the latest?",
            "Tell me the title of the last question posted by {name}.",
        ),
    ),
    Structure(
        "most_viewed",
        "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN q.title ORDER BY q.viewCount DESC LIMIT {count}",
        (
            "Which {count} questions about {tag} have the most views?",
            "List the {count} most viewed questions tagged {tag}.",
            "Show the titles of the top {count} questions under {tag} by views.",
            "What are the {count} questions about {tag} that people viewed most?",
            "Please list the {count} most viewed questions with the tag {tag}.",
            "Can you find the top {count} {tag} questions by number of views?",
            "Which {count} questions tagged {tag} got the most views?",
            "Name the {count} questions under {tag} that people viewed most.",
        ),
    ),
    Structure(
        "without_accepted",
        "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' AND NOT (q)-[:ACCEPTED]->() RETURN count(*)",
        (
            "How many questions tagged {tag} have no accepted answer?",
            "Count the questions about {tag} without an accepted answer.",
            "For how many {tag} questions was no answer accepted?",
            "What is the number of questions under {tag} that have no accepted answer?",
            "How many questions with the tag {tag} are still without an accepted answer?",
            "Please give the number of {tag} questions with no accepted answer.",
            "Count the {tag} questions for which no answer was accepted.",
            "How many questions about {tag} are there without an accepted answer?",
        ),
    ),
    Structure(
        "comments_in_year",
        "MATCH (u:User)-[:WROTE]->(c:Comment) WHERE u.displayName = '{name}' AND c.creationDate.year = {year} "
        "RETURN count(*)",
        (
            "How many comments did {name} write in {year}?",
            "Count the comments {name} made during {year}.",
            "What is the number of comments by {name} in {year}?",
            "How often did {name} comment in {year}?",
            "In {year}, how many comments did {name} make?",
            "Give the number of comments written by {name} during {year}.",
            "Count the comments by {name} from {year}.",
            "Tell me how often {name} commented during {year}.",
        ),
    ),
    Structure(
        "unedited_answers",
        "MATCH (u:User)-[:OWNS]->(a:Answer) WHERE u.displayName = '{name}' AND a.lastEditDate IS NULL RETURN count(*)",
        (
            "How many answers by {name} were never edited?",
            "Count the answers of {name} that nobody has edited.",
            "What is the number of answers by {name} without an edit?",
            "How many of the answers {name} wrote have never been edited?",
            "For how many answers by {name} is there no edit?",
            "How many answers by {name} have no edit?",
            "Count the answers {name} wrote that were never edited.",
            "Tell me how many answers of {name} have never been edited.",
        ),
    ),
    Structure(
        "tag_average_score",
        "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' RETURN avg(q.score)",
        (
            "What is the average score of questions tagged {tag}?",
            "Give the average score of questions about {tag}.",
            "How high is the average score of {tag} questions?",
            "Find the average score of the questions with the tag {tag}.",
            "What average score do questions under {tag} have?",
            "Show the average score of {tag} questions.",
            "Tell me the average score of questions under the tag {tag}.",
            "What score does a question about {tag} have on average?",
        ),
        held_out=NEW_COMBINATION,
    ),
    # ------------------------------------------------------------------------------------------------ two hops
    Structure(
        "answerers",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question) WHERE q.postId = {question} "
        "RETURN DISTINCT u.displayName",
        (
            "Who answered question {question}?",
            "Which users wrote an answer to question {question}?",
            "List the people who answered question {question}.",
            "Name the authors of the answers to question {question}.",
            "Show everyone who gave an answer to question {question}.",
            "Find the members who answered question {question}.",
            "Which people posted an answer to question {question}?",
            "Name all users with an answer to question {question}.",
        ),
    ),
    Structure(
        "tags_asked",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE u.displayName = '{name}' "
        "RETURN DISTINCT t.tagName",
        (
            "Which tags are on the questions of {name}?",
            "List the tags of the questions asked by {name}.",
            "What tags has {name} asked about?",
            "Please show the tags {name} has used on questions.",
            "Under which tags did {name} post questions?",
            "Name the tags that {name} asked questions about.",
            "What tags are there on questions by {name}?",
            "Find all tags of the questions that {name} posted.",
        ),
    ),
    Structure(
        "askers_with_accepted",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' AND (q)-[:ACCEPTED]->() "
        "RETURN count(DISTINCT u.userId)",
        (
            "How many different users asked a question about {tag} that has an accepted answer?",
            "Count the users who asked a {tag} question for which an answer was accepted.",
            "How many members asked a question tagged {tag} and got an accepted answer?",
            "What is the number of different people who asked about {tag} and have an accepted answer?",
            "Of the users who asked about {tag}, how many have a question with an accepted answer?",
            "How many different members posted a {tag} question that got an accepted answer?",
            "Give the number of people who asked about {tag} and got an accepted answer.",
            "Count the different users whose question under {tag} has an accepted answer.",
        ),
    ),
    Structure(
        "location_tags",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE u.location = '{location}' "
        "RETURN t.tagName, count(*)",
        (
            "How many questions did users from {location} ask under each tag?",
            "For each tag, count the questions asked by people in {location}.",
            "Show every tag with the number of questions from users in {location}.",
            "Which tags do members from {location} ask about, and how often?",
            "Per tag, how many questions did people from {location} post?",
            "Give the number of questions per tag for users based in {location}.",
            "For each tag, how many questions did members in {location} ask?",
            "List the tags used by people in {location} with the number of questions.",
        ),
    ),
    Structure(
        "first_comment",
        "MATCH (c:Comment)-[:ON_POST]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN min(c.creationDate)",
        (
            "When was the first comment on a question about {tag} written?",
            "What is the date of the oldest comment on a {tag} question?",
            "When did people first comment on a question tagged {tag}?",
            "Give the date of the first comment under {tag} questions.",
            "Find the date of the first comment on questions with the tag {tag}.",
            "When was a question tagged {tag} first commented on?",
            "On what date was the oldest comment on questions tagged {tag} written?",
            "When was the first comment on a {tag} question posted?",
        ),
    ),
    Structure(
        "commented_questions",
        "MATCH (u:User)-[:WROTE]->(c:Comment)-[:ON_POST]->(q:Question) WHERE u.displayName = '{name}' "
        "RETURN count(DISTINCT q.postId)",
        (
            "How many different questions did {name} comment on?",
            "Count the questions that {name} has commented on.",
            "On how many questions did {name} write a comment?",
            "What is the number of different questions with a comment by {name}?",
            "Give the number of questions {name} commented on.",
            "How many questions have a comment by {name}?",
            "On how many different questions did {name} comment?",
            "Count the different questions that have comments by {name}.",
        ),
    ),
    Structure(
        "description_author",
        "MATCH (t:Tag)-[:HAS_EXCERPT]->(p:Post)<-[:OWNS]-(u:User) WHERE t.tagName = '{tag}' RETURN u.displayName",
        (
            "Who wrote the description of the tag {tag}?",
            "Which user is the author of the description of {tag}?",
            "Name the author of the {tag} tag description.",
            "Can you show who wrote the description for {tag}?",
            "Find the user that posted the description of the tag {tag}.",
            "Who is the author of the description of the tag {tag}?",
            "Which member wrote the description for the tag {tag}?",
            "I want to know who posted the {tag} description.",
        ),
    ),
    Structure(
        "linked_questions",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:LINKS_TO]->(r:Question) WHERE u.displayName = '{name}' "
        "RETURN DISTINCT r.title",
        (
            "Which questions do the questions of {name} link to?",
            "List the questions that are linked from a question by {name}.",
            "Show the titles of questions linked from questions of {name}.",
            "To which questions do the questions asked by {name} link?",
            "Can you find the questions that a question by {name} links to?",
            "Name the questions linked from the questions of {name}.",
            "Which questions are linked from a question that {name} asked?",
            "Show the questions to which the questions posted by {name} link.",
        ),
    ),
    Structure(
        "best_accepted",
        "MATCH (u:User)-[:OWNS]->(a:Answer)<-[:ACCEPTED]-(q:Question) WHERE u.displayName = '{name}' "
        "RETURN max(a.score)",
        (
            "What is the highest score of an accepted answer by {name}?",
            "How high did the best accepted answer of {name} score?",
            "I want to know the top score among the accepted answers of {name}.",
            "Among the accepted answers of {name}, what is the highest score?",
            "What score does the best accepted answer by {name} have?",
            "Tell me the highest score of the accepted answers of {name}.",
            "How high is the score of the best accepted answer by {name}?",
            "Find the highest score that an accepted answer by {name} has.",
        ),
    ),
    Structure(
        "average_answer",
        "MATCH (a:Answer)-[:ANSWERS]->(q:Question)<-[:OWNS]-(u:User) WHERE u.displayName = '{name}' "
        "RETURN avg(a.score)",
        (
            "What is the average score of the answers that {name} got?",
            "How high do answers to questions by {name} score on average?",
            "Give the average score of answers to the questions of {name}.",
            "Find the average score of all answers {name} got on questions.",
            "For questions asked by {name}, show the average score of the answers.",
            "Tell me the average score of the answers to questions by {name}.",
            "On average, what score do the answers to questions of {name} have?",
            "Show the average score of the answers {name} has got.",
        ),
    ),
    Structure(
        "last_editors",
        "MATCH (u:User)-[:LAST_EDITED]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN DISTINCT u.displayName",
        (
            "Which users were the last to edit a question tagged {tag}?",
            "Who made the last edit to questions about {tag}?",
            "List the people who last edited a {tag} question.",
            "Name the members whose edit is the latest on a question under {tag}.",
            "Please show who last edited the questions with the tag {tag}.",
            "Find the users who last edited a question about {tag}.",
            "Who was the last to edit a question under {tag}?",
            "List everyone who made the latest edit to a {tag} question.",
        ),
    ),
    Structure(
        "score_gap",
        "MATCH (a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN max(a.score) - min(a.score)",
        (
            "How far apart are the highest and the lowest score of answers about {tag}?",
            "What is the difference between the best and the worst answer score under {tag}?",
            "By how many points do the best and the worst answer to {tag} questions differ?",
            "Find the difference between the highest and the lowest score of answers to questions about {tag}.",
            "For answers under {tag}, what is the difference between the highest and the lowest score?",
            "Show how far apart the best and the worst score among answers about {tag} are.",
            "By how many points do the highest and the lowest {tag} answer differ?",
            "How far apart do the best and the worst answer under {tag} score?",
        ),
    ),
    Structure(
        "askers",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' RETURN count(DISTINCT u.userId)",
        (
            "How many different users asked questions about {tag}?",
            "Count the people who asked about {tag}.",
            "What is the number of different members with a question tagged {tag}?",
            "How many users have posted a question under {tag}?",
            "Give the number of authors of questions about {tag}.",
            "For {tag}, how many different people asked questions?",
            "Tell me how many members have asked about {tag}.",
            "Count the different authors of {tag} questions.",
        ),
        held_out=NEW_COMBINATION,
    ),
    Structure(
        "questions_per_asker",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN 1.0 * count(*) / count(DISTINCT u.userId)",
        (
            "How many questions about {tag} are there per user who asked?",
            "On average, how many questions did each user who asked about {tag} post?",
            "What is the average number of {tag} questions per author?",
            "Give the number of questions per author under the tag {tag}.",
            "How many questions tagged {tag} did each author ask on average?",
            "Find the average number of questions by users who asked about {tag}.",
            "For {tag}, how many questions are there per author on average?",
            "Show the average number of questions per author for the tag {tag}.",
        ),
        held_out=NEW_COMPONENT,
    ),
    # ------------------------------------------------------------------------------------------------ three hops
    Structure(
        "tags_answered",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE u.displayName = '{name}' "
        "RETURN DISTINCT t.tagName",
        (
            "Which tags are on the questions that {name} answered?",
            "Under which tags has {name} written answers?",
            "List the tags of questions answered by {name}.",
            "What tags does {name} answer questions about?",
            "Can you show the tags on questions with an answer by {name}?",
            "Name the tags {name} has answered questions under.",
            "Find the tags of the questions that {name} gave an answer to.",
            "Which tags did {name} write answers about?",
        ),
    ),
    Structure(
        "answerers_above_score",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE t.tagName = '{tag}' AND a.score > {score} RETURN DISTINCT u.displayName",
        (
            "Which users wrote an answer with a score above {score} to a question tagged {tag}?",
            "Who answered a question about {tag} and scored over {score}?",
            "List the authors of {tag} answers that scored more than {score}.",
            "Name the people whose answers to {tag} questions have a score over {score}.",
            "Find members who have an answer with a score above {score} under {tag}.",
            "Who wrote answers about {tag} that have a score above {score}?",
            "Show the users whose answer to a question tagged {tag} scored over {score}.",
            "Which members gave an answer about {tag} that scored more than {score}?",
        ),
    ),
    Structure(
        "accepted_by_asker",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:ACCEPTED]->(a:Answer)<-[:OWNS]-(w:User) WHERE u.displayName = '{name}' "
        "RETURN DISTINCT w.displayName",
        (
            "Whose answers did {name} accept?",
            "Who wrote the accepted answers to questions asked by {name}?",
            "List the authors of the answers that {name} accepted.",
            "Please name the people whose answer was accepted on a question by {name}.",
            "Which users wrote an answer that was accepted by {name}?",
            "Show the members whose answers were accepted by {name}.",
            "Can you find everyone who wrote an accepted answer to a question of {name}?",
            "Whose answers were accepted on the questions {name} asked?",
        ),
    ),
    Structure(
        "accepted_authors",
        "MATCH (u:User)-[:OWNS]->(a:Answer)<-[:ACCEPTED]-(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN count(DISTINCT u.userId)",
        (
            "How many different users wrote an accepted answer about {tag}?",
            "Count the authors of accepted answers to questions tagged {tag}.",
            "How many people wrote answers that were accepted under {tag}?",
            "What is the number of different members who wrote an accepted answer to {tag} questions?",
            "Give the number of users whose answers to {tag} questions were accepted.",
            "How many members wrote an accepted answer to a question about {tag}?",
            "Count the different people who wrote accepted answers under the tag {tag}.",
            "Tell me how many users wrote answers that were accepted for {tag} questions.",
        ),
    ),
    Structure(
        "top_commenters",
        "MATCH (u:User)-[:WROTE]->(c:Comment)-[:ON_POST]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN u.displayName, count(*) ORDER BY count(*) DESC LIMIT {count}",
        (
            "Which {count} users wrote the most comments on {tag} questions, and how many?",
            "List the {count} people who comment most on questions about {tag}, with their number of comments.",
            "Name the {count} members with the most comments on questions tagged {tag}, and the number for each.",
            "Who are the top {count} users by comments under {tag}, and how many did each write?",
            "I want to see the {count} users who commented most on questions about {tag}, and how often.",
            "Which {count} people commented most on {tag} questions, and how often?",
            "List the {count} users with the most comments on questions about {tag}, and the number of comments.",
            "Who are the {count} members that comment most under {tag}, and how often do they?",
        ),
    ),
    Structure(
        "badge_top_tags",
        "MATCH (b:Badge)<-[:EARNED]-(u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE b.name = '{badge}' "
        "RETURN t.tagName, count(DISTINCT q.postId) ORDER BY count(DISTINCT q.postId) DESC LIMIT {count}",
        (
            "Which {count} tags do holders of the badge {badge} ask about most, and how often?",
            "List the top {count} tags on questions by users with the {badge} badge, with the number of questions.",
            "For people with the badge {badge}, show the {count} most used tags and the number of questions for each.",
            "What are the {count} tags that {badge} holders use most on questions, and how often?",
            "Give the {count} most used tags on questions asked by members with the badge {badge}, and how many have each.",
            "Name the top {count} tags that users with the {badge} badge ask about, and how often.",
            "Which {count} tags are used most on questions by {badge} holders, and on how many questions?",
            "Show the {count} tags that members with the {badge} badge ask about most, with the number of questions.",
        ),
    ),
    Structure(
        "answer_upvotes",
        "MATCH (v:Vote)-[:ON_POST]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE t.tagName = '{tag}' AND v.voteTypeId = 2 RETURN count(*)",
        (
            "How many upvotes did answers to questions about {tag} get?",
            "Count the upvotes on answers under {tag}.",
            "What is the number of upvotes for answers to questions tagged {tag}?",
            "Can you tell me how many upvotes were cast on answers to {tag} questions?",
            "Give the number of upvotes that {tag} answers got.",
            "How many upvotes are there on answers to {tag} questions?",
            "Count all upvotes cast on answers to questions about {tag}.",
            "Tell me how many upvotes answers under the tag {tag} have.",
        ),
    ),
    Structure(
        "voters",
        "MATCH (u:User)-[:CAST]->(v:Vote)-[:ON_POST]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{tag}' "
        "RETURN count(DISTINCT u.userId)",
        (
            "How many different users voted on questions about {tag}?",
            "Count the users who cast a vote on a question tagged {tag}.",
            "What is the number of different people with a vote on {tag} questions?",
            "How many members have voted on a question under {tag}?",
            "For {tag} questions, how many different users cast a vote?",
            "How many different members cast a vote on a {tag} question?",
            "Count the different people who voted on questions tagged {tag}.",
            "Tell me how many users voted on a question about {tag}.",
        ),
    ),
    Structure(
        "revisions_by_tag",
        "MATCH (u:User)-[:MADE]->(h:PostHistory)-[:REVISES]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE u.displayName = '{name}' RETURN t.tagName, count(*)",
        (
            "How many revisions of questions did {name} make under each tag?",
            "For each tag, count the revisions that {name} made to its questions.",
            "I want to see every tag with the number of question revisions by {name}.",
            "Under which tags did {name} revise questions, and how often?",
            "Give the number of question revisions by {name} per tag.",
            "Per tag, how many question revisions did {name} make?",
            "For each tag, how often did {name} revise a question?",
            "List the tags of questions revised by {name} with the number of revisions.",
        ),
    ),
    Structure(
        "total_answer_score",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE u.displayName = '{name}' AND t.tagName = '{tag}' RETURN sum(a.score)",
        (
            "What is the total score of the answers by {name} to questions about {tag}?",
            "How many points do the answers of {name} under {tag} have in total?",
            "Please give the total score that {name} earned with answers to {tag} questions.",
            "Find the total answer score of {name} on questions tagged {tag}.",
            "With answers about {tag}, what total score did {name} get?",
            "What score do all answers by {name} to {tag} questions have in total?",
            "Tell me the total score of all {tag} answers by {name}.",
            "How high is the total score of answers that {name} wrote to questions tagged {tag}?",
        ),
    ),
    Structure(
        "answerers_badges",
        "MATCH (q:Question)<-[:ANSWERS]-(a:Answer)<-[:OWNS]-(u:User)-[:EARNED]->(b:Badge) WHERE q.postId = {question} "
        "RETURN DISTINCT b.name",
        (
            "Which badges do the people who answered question {question} hold?",
            "List the badges of everyone who answered question {question}.",
            "Show the badges earned by the authors of answers to question {question}.",
            "What badges do users with an answer to question {question} have?",
            "Name all badges of the members who answered question {question}.",
            "Find the badges of the users who wrote an answer to question {question}.",
            "Which badges did the people with an answer to question {question} earn?",
            "Show every badge that the authors of answers to question {question} hold.",
        ),
    ),
    Structure(
        "tags_commented",
        "MATCH (u:User)-[:WROTE]->(c:Comment)-[:ON_POST]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE u.displayName = '{name}' RETURN DISTINCT t.tagName",
        (
            "Which tags has {name} commented under?",
            "Under which tags has {name} written comments?",
            "List the tags of questions with a comment by {name}.",
            "What tags does {name} comment on questions about?",
            "Show the tags on questions that have comments from {name}.",
            "Name the tags of all questions {name} commented on.",
            "Find the tags of the questions that got a comment from {name}.",
            "On questions of which tags did {name} write comments?",
        ),
        held_out=NEW_COMBINATION,
    ),
    Structure(
        "answerers_without_accepted",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE t.tagName = '{tag}' AND NOT (q)-[:ACCEPTED]->() RETURN DISTINCT u.displayName",
        (
            "Who answered questions about {tag} that have no accepted answer?",
            "Which users wrote answers to {tag} questions without an accepted answer?",
            "List the people who answered a question tagged {tag} for which no answer was accepted.",
            "Name the members with an answer to a {tag} question that has no accepted answer.",
            "Find everyone who answered questions under {tag} that are still without an accepted answer.",
            "Show the users who gave answers to questions about {tag} with no accepted answer.",
            "Which members answered {tag} questions that have no accepted answer?",
            "List the authors of answers to questions tagged {tag} that are without an accepted answer.",
        ),
        held_out=NEW_COMPONENT,
    ),
    # ------------------------------------------------------------------------------------------------ four hops
    Structure(
        "badge_answered",
        "MATCH (b:Badge)<-[:EARNED]-(u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE b.name = '{badge}' AND t.tagName = '{tag}' RETURN count(DISTINCT q.postId)",
        (
            "How many different questions about {tag} were answered by users with the badge {badge}?",
            "Count the {tag} questions that holders of the {badge} badge answered.",
            "What is the number of different questions tagged {tag} that people with the badge {badge} answered?",
            "How many questions under {tag} did {badge} holders answer?",
            "Please count the {tag} questions with an answer by members who hold the {badge} badge.",
            "How many different {tag} questions were answered by holders of the badge {badge}?",
            "Count the different questions about {tag} that members with the {badge} badge answered.",
            "On how many {tag} questions is there an answer by users who hold the badge {badge}?",
        ),
    ),
    Structure(
        "accepted_badges",
        "MATCH (b:Badge)<-[:EARNED]-(u:User)-[:OWNS]->(a:Answer)<-[:ACCEPTED]-(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE t.tagName = '{tag}' RETURN DISTINCT b.name",
        (
            "Which badges do the authors of accepted answers to {tag} questions hold?",
            "List the badges of users who wrote an accepted answer about {tag}.",
            "What badges did people earn who wrote accepted answers under {tag}?",
            "Can you show all badges of the members with an accepted answer to a question tagged {tag}?",
            "Name the badges that authors of accepted {tag} answers have.",
            "Find the badges earned by the authors of accepted answers about {tag}.",
            "Which badges do people with an accepted answer to {tag} questions have?",
            "Show the badges earned by users whose answers under {tag} were accepted.",
        ),
    ),
    Structure(
        "answer_commenters",
        "MATCH (u:User)-[:WROTE]->(c:Comment)-[:ON_POST]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE t.tagName = '{tag}' RETURN count(DISTINCT u.userId)",
        (
            "How many different users commented on answers to questions about {tag}?",
            "Count the people who wrote a comment on an answer under {tag}.",
            "What is the number of different members who commented on {tag} answers?",
            "How many people have a comment on an answer to a {tag} question?",
            "Give the number of users with comments on answers to questions tagged {tag}.",
            "How many different members wrote a comment on an answer about {tag}?",
            "Count the different users who commented on answers to {tag} questions.",
            "Tell me how many people commented on an answer to a question tagged {tag}.",
        ),
    ),
    Structure(
        "tags_of_revised_answers",
        "MATCH (u:User)-[:MADE]->(h:PostHistory)-[:REVISES]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE u.displayName = '{name}' RETURN DISTINCT t.tagName",
        (
            "Under which tags did {name} revise answers?",
            "Which tags are on the questions whose answers {name} revised?",
            "List the tags of questions with an answer that {name} revised.",
            "What tags do the answers revised by {name} have?",
            "Show the tags under which {name} has revised an answer.",
            "Name the tags of questions whose answers were revised by {name}.",
            "Find all tags under which there are answers revised by {name}.",
            "Which tags have answers that {name} revised?",
        ),
    ),
    Structure(
        "badges_of_accepted",
        "MATCH (u:User)-[:OWNS]->(q:Question)-[:ACCEPTED]->(a:Answer)<-[:OWNS]-(w:User)-[:EARNED]->(b:Badge) "
        "WHERE u.displayName = '{name}' RETURN DISTINCT b.name",
        (
            "Which badges do the people whose answers {name} accepted hold?",
            "List the badges of the authors of answers accepted by {name}.",
            "What badges have users earned whose answer was accepted on a question by {name}?",
            "Show all badges of the members who wrote accepted answers to questions of {name}.",
            "Name the badges that the authors of the answers {name} accepted have.",
            "Find the badges of users whose answers were accepted by {name}.",
            "Which badges did the authors of answers that {name} accepted earn?",
            "Show the badges of everyone whose answer to a question by {name} was accepted.",
        ),
    ),
    Structure(
        "link_answerers",
        "MATCH (t:Tag)<-[:TAGGED]-(q:Question)-[:LINKS_TO]->(r:Question)<-[:ANSWERS]-(a:Answer)<-[:OWNS]-(u:User) "
        "WHERE t.tagName = '{tag}' RETURN DISTINCT u.displayName",
        (
            "Who answered the questions that {tag} questions link to?",
            "Which users wrote answers to questions linked from questions about {tag}?",
            "List the people who answered a question that is linked from a {tag} question.",
            "Name the authors of answers to the questions to which questions tagged {tag} link.",
            "I want to see everyone with an answer to a question that a question under {tag} links to.",
            "Find the members who answered questions linked from {tag} questions.",
            "Which people answered questions that questions about {tag} link to?",
            "List all authors of answers to a question linked from questions under {tag}.",
        ),
    ),
    Structure(
        "badge_tags_above_score",
        "MATCH (b:Badge)<-[:EARNED]-(u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
        "WHERE b.name = '{badge}' AND a.score > {score} RETURN DISTINCT t.tagName",
        (
            "Under which tags did holders of the badge {badge} write answers with a score above {score}?",
            "Which tags have answers by users with the {badge} badge that scored over {score}?",
            "List the tags on which holders of the {badge} badge have an answer that scored more than {score}.",
            "What tags are on questions that people with the badge {badge} gave an answer scored over {score}?",
            "Show the tags under which members with the {badge} badge gave an answer scored above {score}.",
            "Find the tags of questions to which users with the badge {badge} gave answers that scored over {score}.",
            "Name the tags under which answers by {badge} holders have a score above {score}.",
            "Which tags are on questions with an answer scored more than {score} by holders of the {badge} badge?",
        ),
        held_out=NEW_COMBINATION,
    ),
    Structure(
        "badges_of_answered_askers",
        "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)<-[:OWNS]-(w:User)-[:EARNED]->(b:Badge) "
        "WHERE u.displayName = '{name}' RETURN DISTINCT b.name",
        (
            "Which badges do the people whose questions {name} answered hold?",
            "List the badges of users who asked a question that {name} answered.",
            "What badges have members earned whose questions were answered by {name}?",
            "Show the badges of the authors of questions answered by {name}.",
            "Name all badges that people with a question answered by {name} have.",
            "Find the badges of everyone whose question was answered by {name}.",
            "Which badges did the authors of the questions {name} answered earn?",
            "Show all badges of members who asked the questions that {name} answered.",
        ),
        held_out=NEW_COMPONENT,
    ),
)
BY_ID = {s.id: s for s in STRUCTURES}
