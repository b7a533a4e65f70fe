"""How long a worker may act, counted by its own clock from before it asked."""

from datetime import timedelta

from holdfast.crawler.leases import Leases


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def leases(clock: FakeClock) -> Leases:
    return Leases(clock, timedelta(seconds=60))


def test_a_lease_counts_from_before_it_was_asked_for() -> None:
    clock = FakeClock()
    held = leases(clock)
    clock.time = 107.0  # the answer took seven seconds
    held.add([(1, 5)], asked_at=100.0)
    assert held.seconds_left((1, 5)) == 53.0


def test_it_runs_out_with_the_clock() -> None:
    clock = FakeClock()
    held = leases(clock)
    held.add([(1, 5)], asked_at=100.0)
    clock.time = 130.0
    assert held.seconds_left((1, 5)) == 30.0  # a request of 30 s would end with the lease: none may begin
    clock.time = 200.0
    assert held.seconds_left((1, 5)) == -40.0


def test_a_renewal_never_makes_it_shorter() -> None:
    clock = FakeClock()
    held = leases(clock)
    held.add([(1, 5), (2, 6)], asked_at=100.0)
    held.renew([(1, 5)], asked_at=120.0)
    held.renew([(1, 5)], asked_at=110.0)  # a commit that was asked for before, answered after
    assert held.seconds_left((1, 5)) == 80.0
    assert held.seconds_left((2, 6)) == 60.0


def test_what_is_not_held_has_nothing_left() -> None:
    clock = FakeClock()
    held = leases(clock)
    assert held.seconds_left((7, 1)) < 0
    held.renew([(7, 1)], asked_at=100.0)
    assert held.seconds_left((7, 1)) < 0
    assert held.tenures() == []


def test_what_was_dropped_stays_dropped() -> None:
    clock = FakeClock()
    held = leases(clock)
    held.add([(2, 6), (1, 5)], asked_at=100.0)
    assert held.tenures() == [(1, 5), (2, 6)]
    held.drop((1, 5))
    held.drop((1, 5))
    held.renew([(1, 5), (2, 6)], asked_at=150.0)
    assert held.seconds_left((1, 5)) < 0
    assert held.tenures() == [(2, 6)]


def test_a_new_tenure_of_the_same_domain_has_a_lease_of_its_own() -> None:
    clock = FakeClock()
    held = leases(clock)
    held.add([(1, 5)], asked_at=40.0)
    held.add([(1, 6)], asked_at=101.0)
    assert held.seconds_left((1, 5)) == 0.0
    assert held.seconds_left((1, 6)) == 61.0
    held.drop((1, 5))  # the visit of the first one ends late
    assert held.tenures() == [(1, 6)]
    assert held.seconds_left((1, 6)) == 61.0


# Silence: what the store does not hear of, others take over ------------------------------------------------------------


def test_no_request_begins_that_could_outlast_a_silence_of_a_hundred_seconds() -> None:
    clock = FakeClock()
    held = Leases(clock, timedelta(minutes=30))
    held.add([(1, 5)], asked_at=100.0)
    assert held.seconds_left((1, 5)) == 100.0, "not the half hour of the lease"
    clock.time = 170.0
    assert held.seconds_left((1, 5)) == 30.0, "a request of 30 s may not begin any more"
    clock.time = 201.0
    assert held.seconds_left((1, 5)) == -1.0
    assert not held.may_request


def test_an_acknowledged_heartbeat_counts_from_when_it_was_sent() -> None:
    clock = FakeClock()
    held = Leases(clock, timedelta(minutes=30))
    held.add([(1, 5)], asked_at=100.0)
    clock.time = 160.0
    held.acknowledge(150.0)
    assert held.seconds_left((1, 5)) == 90.0
    held.acknowledge(140.0)
    assert held.seconds_left((1, 5)) == 90.0, "an older one takes nothing away"
    assert held.may_request
    held.drop((1, 5))
    assert held.seconds_left((1, 5)) < 0
