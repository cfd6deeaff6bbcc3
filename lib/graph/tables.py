"""The eight tables that every source of a graph has to yield, column for column as BIRD spells them, typos included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]  # column -> int, text or None; a missing column is None
Tables = Iterator[
    tuple[str, Iterable[Row]]
]  # (table, rows) in the order of TABLES, each read before the next is asked for


class SourceError(RuntimeError):
    """A source is unknown, or its data can't be read; the message names what, and the way out."""


# The order matters: what keys point to comes before what holds them, so that rows can be streamed.
TABLES: dict[str, dict[str, str]] = {
    "users": {
        "Id": "integer",
        "Reputation": "integer",
        "CreationDate": "datetime",
        "DisplayName": "text",
        "LastAccessDate": "datetime",
        "WebsiteUrl": "text",
        "Location": "text",
        "AboutMe": "text",
        "Views": "integer",
        "UpVotes": "integer",
        "DownVotes": "integer",
        "AccountId": "integer",
        "Age": "integer",
        "ProfileImageUrl": "text",
    },
    "tags": {
        "Id": "integer",
        "TagName": "text",
        "Count": "integer",
        "ExcerptPostId": "integer",
        "WikiPostId": "integer",
    },
    "posts": {
        "Id": "integer",
        "PostTypeId": "integer",
        "AcceptedAnswerId": "integer",
        "CreaionDate": "datetime",
        "Score": "integer",
        "ViewCount": "integer",
        "Body": "text",
        "OwnerUserId": "integer",
        "LasActivityDate": "datetime",
        "Title": "text",
        "Tags": "text",
        "AnswerCount": "integer",
        "CommentCount": "integer",
        "FavoriteCount": "integer",
        "LastEditorUserId": "integer",
        "LastEditDate": "datetime",
        "CommunityOwnedDate": "datetime",
        "ParentId": "integer",
        "ClosedDate": "datetime",
        "OwnerDisplayName": "text",
        "LastEditorDisplayName": "text",
    },
    "comments": {
        "Id": "integer",
        "PostId": "integer",
        "Score": "integer",
        "Text": "text",
        "CreationDate": "datetime",
        "UserId": "integer",
        "UserDisplayName": "text",
    },
    "votes": {
        "Id": "integer",
        "PostId": "integer",
        "VoteTypeId": "integer",
        "CreationDate": "date",
        "UserId": "integer",
        "BountyAmount": "integer",
    },
    "badges": {"Id": "integer", "UserId": "integer", "Name": "text", "Date": "datetime"},
    "postLinks": {
        "Id": "integer",
        "CreationDate": "datetime",
        "PostId": "integer",
        "RelatedPostId": "integer",
        "LinkTypeId": "integer",
    },
    "postHistory": {
        "Id": "integer",
        "PostHistoryTypeId": "integer",
        "PostId": "integer",
        "RevisionGUID": "text",
        "CreationDate": "datetime",
        "UserId": "integer",
        "Text": "text",
        "Comment": "text",
        "UserDisplayName": "text",
    },
}
