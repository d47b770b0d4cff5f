"""Attributes of segments: conditional updates, and moving extended attributes to the table of attributes and back."""

from __future__ import annotations

from collections.abc import Sequence

import immutables

from engine.errors import BadAttributeUpdate, SegmentSealed, SegmentTransient, Unresolved
from engine.state import operations as ops
from engine.state.changes.draft import StateDraft
from engine.state.operations import AttributeUpdate, UpdateKind
from engine.state.segments import MAX_VALUE, NULL_VALUE, TRANSIENT_ATTRIBUTES, Segment, is_core
from engine.state.tables import ATTRIBUTES, attribute_key, attribute_value


def updated(draft: StateDraft, segment: Segment, updates: Sequence[AttributeUpdate]) -> immutables.Map[bytes, int]:
    """A segment's attributes after `updates`. Raises BadAttributeUpdate, Unresolved."""
    if segment.spilled and draft.validating:
        for update in updates:
            if update.attribute not in segment.attributes and not is_core(update.attribute):
                _require_spilled(draft, segment, update.attribute, None)  # otherwise it has to be loaded first
    attributes = updated_attributes(segment.name, segment.attributes, updates)
    if segment.parent and updates:
        check_few(segment.name, attributes)
    return attributes


def remove_spilled(draft: StateDraft, segment: Segment, updates: Sequence[AttributeUpdate]) -> None:
    """Remove attributes of a spilled segment that are removed in memory from the table of attributes too."""
    for update in updates:
        if update.value == NULL_VALUE and not is_core(update.attribute):
            draft.put(ATTRIBUTES, attribute_key(segment.id, update.attribute), None)


def _require_spilled(draft: StateDraft, segment: Segment, attribute: bytes, value: int | None) -> None:
    """Raise Unresolved unless the table of attributes has this value (None: does not have the attribute)."""
    key = attribute_key(segment.id, attribute)
    try:
        entry = draft.entry(ATTRIBUTES, key)
    except Unresolved as error:
        raise Unresolved(ATTRIBUTES, error.keys, segment.name) from None
    spilled = entry.value if entry is not None else None
    if value != (attribute_value(spilled) if spilled is not None else None):
        raise Unresolved(ATTRIBUTES, (key,), segment.name)


def update_attributes(draft: StateDraft, op: ops.UpdateAttributes) -> None:
    segment = draft.segment(op.segment)
    if segment.parent:
        raise SegmentTransient(op.segment, "have attributes updated without an append")
    if segment.sealed and not all(is_core(update.attribute) for update in op.updates):
        raise SegmentSealed(op.segment)
    attributes = updated(draft, segment, op.updates)
    if segment.spilled:
        remove_spilled(draft, segment, op.updates)
    draft.keep(segment._replace(attributes=attributes, modified=draft.time))


def spill(draft: StateDraft, op: ops.SpillAttributes) -> None:
    segment = draft.segment(op.segment)
    if segment.parent:
        return  # it can only have few
    for attribute, value in segment.attributes.items():
        if not is_core(attribute):
            draft.put(ATTRIBUTES, attribute_key(segment.id, attribute), value.to_bytes(8, "big", signed=True))
    core = immutables.Map({key: value for key, value in segment.attributes.items() if is_core(key)})
    draft.keep(segment._replace(attributes=core, spilled=True))


def load(draft: StateDraft, op: ops.LoadAttributes) -> None:
    segment = draft.segment(op.segment)
    missing = {key: value for key, value in op.values if key not in segment.attributes}
    for key, value in missing.items() if draft.validating else ():
        _require_spilled(draft, segment, key, value)
    draft.store(segment._replace(attributes=segment.attributes.update(missing)))


def check_few(segment: str, attributes: immutables.Map[bytes, int]) -> None:
    """Reject more extended attributes than a transient segment may have."""
    extended = sum(not is_core(attribute) for attribute in attributes)
    if extended > TRANSIENT_ATTRIBUTES:
        raise SegmentTransient(segment, f"have {extended} extended attributes, more than {TRANSIENT_ATTRIBUTES}")


def updated_attributes(
    segment: str, attributes: immutables.Map[bytes, int], updates: Sequence[AttributeUpdate]
) -> immutables.Map[bytes, int]:
    """The attributes after all of `updates`. Raises BadAttributeUpdate if a condition does not hold."""
    for attribute, kind, value, comparison in updates:
        present = attributes.get(attribute)
        if kind is UpdateKind.NONE and present is not None:
            raise BadAttributeUpdate(segment, attribute, present, "it may be set only once")
        if kind is UpdateKind.REPLACE_IF_GREATER and present is not None and value <= present:
            raise BadAttributeUpdate(segment, attribute, present, f"it may only be replaced by more, not by {value}")
        if kind is UpdateKind.REPLACE_IF_EQUALS and present != (None if comparison == NULL_VALUE else comparison):
            raise BadAttributeUpdate(segment, attribute, present, f"it must be {comparison}")
        if kind is UpdateKind.ACCUMULATE:
            value += present or 0
        if not NULL_VALUE <= value <= MAX_VALUE:
            raise BadAttributeUpdate(segment, attribute, present, f"it must fit into 64 bits, and {value} does not")
        if value != NULL_VALUE:
            attributes = attributes.set(attribute, value)
        elif present is not None:
            attributes = attributes.delete(attribute)
    return attributes
