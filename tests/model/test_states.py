"""The state machine in Python, and that it is the one of the specification."""

from __future__ import annotations

import pytest

from holdfast.model.states import INITIAL, TERMINAL, TRANSITIONS, State, Status, public_status

#: Section 2 of the specification, as it is written there.
SPECIFIED = {
    "created": "scheduled queued canceled",
    "scheduled": "queued paused canceled",
    "queued": "running paused canceled",
    "running": "running success retry dead error paused canceled queued scheduled",
    "retry": "queued running dead paused canceled",
    "paused": "queued scheduled canceled",
    "error": "queued dead canceled",
    "success": "",
    "dead": "",
    "canceled": "",
}


def test_the_table_is_that_of_the_specification() -> None:
    assert {state.value: {goal.value for goal in goals} for state, goals in TRANSITIONS.items()} == {
        state: set(goals.split()) for state, goals in SPECIFIED.items()
    }


def test_nothing_leaves_a_terminal_state_and_every_other_can_end() -> None:
    assert {state for state, goals in TRANSITIONS.items() if not goals} == TERMINAL
    reached = set(TERMINAL)
    while grown := {state for state in State if TRANSITIONS[state] & reached} - reached:
        reached |= grown
    assert reached == set(State)


def test_every_state_can_be_reached_from_the_initial_ones() -> None:
    reached = set(INITIAL)
    while grown := {goal for state in reached for goal in TRANSITIONS[state]} - reached:
        reached |= grown
    assert reached == set(State)


def test_terminal_is_told_by_the_state_itself() -> None:
    assert {state for state in State if state.terminal} == TERMINAL


@pytest.mark.parametrize("state", State)
def test_clients_see_the_status_of_the_specification(state: State) -> None:
    expected = {
        State.RUNNING: Status.RUNNING, State.SUCCESS: Status.COMPLETED, State.DEAD: Status.FAILED,
        State.PAUSED: Status.PAUSED, State.ERROR: Status.ERROR, State.CANCELED: Status.CANCELED,
    }  # fmt: skip
    assert public_status(state) == expected.get(state, Status.PENDING)
