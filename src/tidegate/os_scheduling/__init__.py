"""Scheduling from outside: priorities for the threads of running streaming queries, by nice and control groups."""

from tidegate.os_scheduling.drivers import Driver, EndpointDriver, Operator, OrderedDriver
from tidegate.os_scheduling.policies import View

__all__ = ["Driver", "EndpointDriver", "Operator", "OrderedDriver", "View"]
