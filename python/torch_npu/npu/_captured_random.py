# SPDX-License-Identifier: Apache-2.0
"""Random states of a capture: where the program sets one, a replay sets it too.

Draws of a replay are reserved in the order of the program, so most need no help. A checkpoint sets
the state back before it computes again: that becomes an instruction, relative to where the
generator was when the replay began. A seed set inside the capture is taken as it is.
"""

import torch


def _state_of(generator) -> tuple[int, int]:
    """(seed, offset)"""
    seed, offset = generator.get_state().view(torch.int64).tolist()
    return seed, offset


def _set(generator, seed: int, offset: int) -> None:
    generator.set_state(torch.tensor([seed, offset]).view(torch.uint8))


class _Followed:
    """One generator: where it began, and where the last call left it."""

    def __init__(self, generator):
        self.generator = generator
        self.first = self.last = _state_of(generator)
        self._replay_began = self.first

    def begin(self) -> None:
        self._replay_began = _state_of(self.generator)

    def setter(self, state: tuple[int, int]):
        """A replay's step at the place where the program set this generator state."""
        (first_seed, first_offset), (seed, offset) = self.first, state

        def set_again() -> None:
            if seed != first_seed:
                _set(self.generator, seed, offset)
            else:
                began_seed, began_offset = self._replay_began
                _set(self.generator, began_seed, began_offset + offset - first_offset)

        return set_again


class CapturedRandom:
    def __init__(self):
        self._followed: dict[int, _Followed] = {}

    def follow(self, generator) -> None:
        if id(generator) not in self._followed:
            self._followed[id(generator)] = _Followed(generator)

    def follow_device(self, index: int) -> None:
        self.follow(torch.npu.default_generators[index])

    def changes(self):
        """[function of a replay] for states that were set since the last call."""
        found = []
        for followed in self._followed.values():
            state = _state_of(followed.generator)
            if state != followed.last:
                found.append(followed.setter(state))
                followed.last = state
        return found

    def note_call(self) -> None:
        for followed in self._followed.values():
            followed.last = _state_of(followed.generator)

    def begin(self) -> None:
        """Before the first instruction of a replay."""
        for followed in self._followed.values():
            followed.begin()

    def restore(self) -> None:
        for followed in self._followed.values():
            _set(followed.generator, *followed.first)
