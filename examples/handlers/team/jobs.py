"""What a team's workers run: a document is summarised part by part, then as a whole."""

from __future__ import annotations

import logging
from typing import Any

from llmqueue.app import App, CallRefused, Context, Failure, Reject

MODEL = "gpt-4o-mini"
PART_CHARACTERS = 2000

app = App()
log = logging.getLogger(__name__)


async def ask(ctx: Context, task: str, text: str) -> str:
    """One call; when the job runs again, an answer that is there is not paid again."""
    answer = await ctx.llm.chat(
        model=MODEL,
        messages=[{"role": "system", "content": task}, {"role": "user", "content": text}],
        max_tokens=200,
    )
    content: str = answer["choices"][0]["message"]["content"]
    return content


@app.handler("summarise")
async def summarise(ctx: Context, document: str, *, language: str = "en") -> dict[str, Any]:
    """A call for each part of the document, and one for the whole."""
    parts = [
        document[start : start + PART_CHARACTERS]
        for start in range(0, len(document), PART_CHARACTERS)
    ]
    if not parts:
        raise Reject("the document is empty")
    notes: list[str] = []
    for number, part in enumerate(parts):
        try:
            notes.append(await ask(ctx, f"Summarise this part in {language}.", part))
        except CallRefused as refused:  # one part that the provider never takes
            notes.append(f"(part {number + 1} left out: {refused})")
        await ctx.progress((number + 1) / (len(parts) + 1), f"part {number + 1} of {len(parts)}")
    summary = await ask(ctx, f"Make one summary of these notes in {language}.", "\n".join(notes))
    return {"summary": summary, "parts": len(parts)}


@app.on_failure
async def mark_for_manual_work(failure: Failure) -> None:
    """May hear of an event twice: a real application marks its record by `event_id`."""
    log.warning("job %s is %s: %s", failure.job_id, failure.state, failure.message)
