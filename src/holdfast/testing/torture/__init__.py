"""Fault injection: kills a crawl repeatedly and proves that no work is lost or done twice.

`scenario` defines the faults and the simulated web, `process` runs the crawl, `sandbox` has its folders and servers, `fault_run`
injects the faults, `checks` verifies the result, and `experiment` runs all of it in order.
"""
