# SPDX-License-Identifier: Apache-2.0
"""The gradients of one API call: what its results receive, and its share of its arguments'.

A call may be several autograd nodes (a 3-D linear is a view of an addmm), and its arguments may
feed other calls too. So the nodes between the results and the arguments are found, and what they
send over the edges to the arguments is summed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from torch.autograd.graph import get_gradient_edge

from op_tools.core import quiet
from op_tools.core.containers import tensors_in

_MOST_NODES = 4096


class GradientWatch:
    """Made before the call; attach() after it; done(grad_inputs, grad_outputs) in backward."""

    def __init__(self, *values: object, most_nodes: int = _MOST_NODES) -> None:
        self._most_nodes = most_nodes
        self._inputs: list = []
        self._lock = threading.Lock()
        self._handles: list = []
        self._waiting = 0
        self._first = 0
        if torch.is_grad_enabled():
            # Of the nodes made by the call, the lowest number.
            self._first = torch._C._autograd._get_sequence_nr()
            self._inputs = [_edge(tensor) for tensor in tensors_in(*values)]

    def attach(
        self,
        result: object,
        done: Callable[[tuple, tuple], None],
        begin: Callable[[], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        without_inputs: bool = False,
    ) -> bool:
        """False where the call has no backward; `without_inputs`: where no argument gets a gradient
        (a first layer), what the results receive is told all the same. failed(error) is told what
        goes wrong in here, in done() or in begin(): backward goes on."""
        positions: dict = {}
        for i, edge in enumerate(self._inputs):
            if edge is not None:
                positions.setdefault(edge, []).append(i)
        outputs = tensors_in(result)
        nodes = {t.grad_fn for t in outputs if t.grad_fn is not None}
        edges = self._edges(nodes, set(positions))
        if not nodes or not (edges or without_inputs):
            return False
        self._done, self._begin, self._positions = done, begin, positions
        self._failed = failed
        self._grad_inputs: list = [None] * len(self._inputs)
        self._grad_outputs: list = [None] * len(outputs)
        self._waiting, self._to_receive = len(edges), 0 if edges else len(nodes)
        for node in nodes:
            places = [(i, t.output_nr) for i, t in enumerate(outputs) if t.grad_fn is node]
            self._handles.append(node.register_prehook(self._receiver(places)))
        for node, exits in edges.items():
            self._handles.append(node.register_hook(self._sender(exits)))
        return True

    def _edges(self, nodes: set, inputs: set) -> dict:
        """node -> [(position in next_functions, edge of an argument)]."""
        found: dict = {}
        seen, todo = set(nodes), list(nodes)
        while todo and len(seen) < self._most_nodes:
            node = todo.pop()
            for k, (following, number) in enumerate(node.next_functions):
                if following is None:
                    continue
                if (following, number) in inputs:
                    found.setdefault(node, []).append((k, (following, number)))
                elif following not in seen and following._sequence_nr() >= self._first:
                    seen.add(following)
                    todo.append(following)
        return found

    def _receiver(self, places: list):
        def receive(grad_outputs: tuple) -> None:
            with self._lock, quiet(), self._guarded():
                begin, self._begin = self._begin, None
                if begin is not None:
                    begin()
                for i, number in places:
                    self._grad_outputs[i] = _copy(grad_outputs[number])
                self._to_receive -= 1
                if self._to_receive == 0:
                    self.finish()

        return receive

    def _sender(self, exits: list):
        def send(grad_inputs: tuple, grad_outputs: tuple) -> None:
            with self._lock, quiet(), self._guarded():
                for k, edge in exits:
                    self._add(edge, grad_inputs[k])
                self._waiting -= 1
                if self._waiting == 0:
                    self.finish()

        return send

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._release()
            if self._failed is None:
                raise
            self._failed(error)

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _add(self, edge: tuple, gradient: torch.Tensor | None) -> None:
        # The same tensor given twice has one edge; its gradient is told once.
        i = self._positions[edge][0]
        if gradient is not None:
            sum_so_far = self._grad_inputs[i]
            self._grad_inputs[i] = (
                _copy(gradient) if sum_so_far is None else sum_so_far + gradient.detach()
            )

    def finish(self) -> None:
        """Tells what has arrived; nothing is told twice."""
        self._release()
        if any(g is not None for g in self._grad_outputs):
            self._done(tuple(self._grad_inputs), tuple(self._grad_outputs))


def _edge(tensor: torch.Tensor):
    if not tensor.requires_grad:
        return None
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()
