"""How a consumer of job events tells duplicates (job event contract, section 4)."""

from __future__ import annotations

from dataclasses import replace

from inbox.config import ConsumerSettings


def job_event_settings(settings: ConsumerSettings | None = None) -> ConsumerSettings:
    """`settings` with the identity that job events have: their `ce-id` alone, and no fingerprint.

        inbox = Inbox("billing", store=store, settings=job_event_settings(ConsumerSettings.from_env()))

    The id is made of the job and its end, and the verifier binds it to the signed body. What else there is may change
    between two emissions of one event: the body of a job that was processed twice, `ce-source` and `ce-type` of a newer
    Worker. A fingerprint of these would put true duplicates into quarantine as `identity-conflict`. And `source+id`
    would trust `ce-source`, which nobody signs: whoever may publish could have an event applied once more for each
    source that they make up.

    Args:
        settings: all the others; None takes the defaults.
    """
    return replace(settings or ConsumerSettings(), identity="id", fingerprint=None)
