"""Simulation: a program in several processes, in virtual time, with faults, by a seed.

`simulation` runs scenarios, `server` is the database of a run, `event_loop` its time.
"""

from keyhouse.testing.simulation.event_loop import StalledError, VirtualLoop
from keyhouse.testing.simulation.server import Network, SimulatedEngine, SimulatedServer
from keyhouse.testing.simulation.simulation import (
    FailedRunError,
    FaultPlan,
    SimulatedClock,
    SimulatedProcess,
    SimulationRun,
    World,
    explore,
    simulate,
)

__all__ = [
    "FailedRunError",
    "FaultPlan",
    "Network",
    "SimulatedClock",
    "SimulatedEngine",
    "SimulatedProcess",
    "SimulatedServer",
    "SimulationRun",
    "StalledError",
    "VirtualLoop",
    "World",
    "explore",
    "simulate",
]
