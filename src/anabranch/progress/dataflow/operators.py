"""The frontier of each operator: the least time that anything upstream may still bring.

Inputs hold with an input handle, pending state holds with a capability. The operators are walked in
graph order: what falls due by an operator's frontier is discharged in the same step, and what it
leaves behind is not before that frontier. So it holds nothing back further downstream, unless
frontiers there are ahead because an input is idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.progress.capability import Capability, OutputPort
from anabranch.progress.dataflow.inputs import InputProgress
from anabranch.progress.dataflow.times import Frontiers, HeldTime, is_over
from anabranch.progress.inputs import InputHandle
from anabranch.progress.scope import Scope
from anabranch.progress.summaries import Delay
from anabranch.progress.topology import InputPort
from anabranch.progress.tracker import Held
from anabranch.protocol.time_graph import GraphOperator, TimeGraph
from anabranch.records.times import EARLIEST, END_OF_TIME


class OperatorScope:
    """The operators of a dataflow in one step, and everything that holds their frontiers back.

    After ``walk``, the scope holds what stays: inputs that are not idle, and state that is not due.
    """

    def __init__(self, graph: TimeGraph, inputs: Sequence[InputProgress]) -> None:
        """Every input holds at its frontier; one that has ended holds nothing."""
        self._operators = graph.operators
        self._inputs = inputs
        self._scope: Scope[int] = Scope(least=EARLIEST)
        self._handles: dict[str, InputHandle[int]] = {}
        self._ports: dict[str, OutputPort] = {}
        for each in inputs:
            self._add_input(each)
        for operator in graph.operators:
            sources = [self._ports[name] for name in operator.inputs]
            lag = [[Delay(-operator.lag_us)] for _ in sources]
            [account] = self._scope.add(operator.name, sources, 1, lag)
            self._ports[operator.name] = account.port
        self._scope.propagate()

    def walk(self, value: Frontiers) -> dict[str, int]:
        """The frontier of every operator in the step, from what is committed."""
        allowed = self._allowed_by_inputs()
        held = {each.name: self._hold(value, each) for each in self._operators}
        self._scope.propagate()
        found: dict[str, int] = {}
        for operator in self._operators:
            before = value.operator(operator.name).frontier
            until = max(before, min(allowed[operator.name], self._least(operator)))
            found[operator.name] = until
            for hold, capability in held[operator.name]:
                if hold is None or hold.due <= until:
                    _discharge(capability, until, operator.lag_us)
            self._scope.propagate()
        return found

    def holding_back(self, operator: GraphOperator) -> list[Held[int]]:
        """The inputs and the pending state that an operator's frontier waits for."""
        tracker, least = self._scope.tracker, self._least(operator)
        found: dict[tuple[OutputPort | InputPort, int], Held[int]] = {}
        for port in _ports_of(operator):
            if least in self._scope.frontier(port):
                found |= {(each.port, each.time): each for each in tracker.holding_back(port)}
        return list(found.values())

    def _add_input(self, each: InputProgress) -> None:
        handle: InputHandle[int] = InputHandle(EARLIEST)
        self._ports[each.given.name] = handle.input_from(self._scope, each.given.name)
        self._handles[each.given.name] = handle
        if is_over(each.frontier):
            handle.close()
        else:
            handle.advance_to(each.frontier)

    def _allowed_by_inputs(self) -> dict[str, int]:
        """How far each operator may go by its inputs alone, with idle ones holding nothing.

        They leave in the order in which they fell idle. The last to leave an operator without any
        other holds it: its frontier goes on with the clock.
        """
        allowed = {each.name: self._least(each) for each in self._operators}
        moments = {each.idle_since for each in self._inputs if each.idle_since is not None}
        for moment in sorted(moments):
            for each in self._inputs:
                if each.idle_since == moment:
                    self._handles[each.given.name].close()
            self._scope.propagate()
            for operator in self._operators:
                if not is_over(least := self._least(operator)):
                    allowed[operator.name] = least
        return allowed

    def _hold(
        self, value: Frontiers, operator: GraphOperator
    ) -> list[tuple[HeldTime | None, Capability[int]]]:
        """A capability for each time that something is pending for: output may lag behind it.

        Without a time it is that of timers by the clock, whose output is at the frontier.
        """
        times = value.operator(operator.name)
        at: list[tuple[HeldTime | None, int]] = [(hold, hold.time) for hold in times.holds]
        if times.wakes:
            at.append((None, times.frontier))
        port = self._ports[operator.name]
        return [
            (hold, self._scope.acquire(port, time - operator.lag_us, operator.name))
            for hold, time in at
        ]

    def _least(self, operator: GraphOperator) -> int:
        """The least time that may still come to an operator; the end of time if none may."""
        times = (time for port in _ports_of(operator) for time in self._scope.frontier(port))
        return min(times, default=END_OF_TIME)


def _discharge(capability: Capability[int], until: int, lag_us: int) -> None:
    """Give up what is before a frontier; at the end of time nothing is left."""
    if is_over(until):
        capability.release()
    else:
        capability.downgrade(until - lag_us)


def _ports_of(operator: GraphOperator) -> list[InputPort]:
    return [InputPort(operator.name, index) for index in range(len(operator.inputs))]
