import asyncio
import contextvars
import gc
import math
import os
import subprocess
import sys
import threading
import time

import pytest

from langmem_recall.deadline import (
    Breaker,
    CallProgress,
    Crowded,
    Deadline,
    Gate,
    Pending,
    TooLate,
    at_most,
    limited,
    loading,
    start,
)
from langmem_recall.errors import ConfigurationError

SHORT = 0.02
ROOMY = 0.15
"""Long enough for a call to begin its load even on a busy machine."""
LONG = 60.0
name = contextvars.ContextVar("name", default="nobody")


@pytest.fixture
def hold():
    """An event that calls hang on; set at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(params=["sync", "async"])
def within(request):
    """Carries out a blocking call under a deadline: in a thread, or awaited from a task."""
    if request.param == "sync":
        return lambda deadline, call: deadline.run(call)

    def awaited(deadline, call):
        async def main():
            try:
                return await deadline.arun(lambda: in_daemon_thread(call))
            finally:
                await settled()

        return asyncio.run(main())

    return awaited


async def in_daemon_thread(call):
    """Like asyncio.to_thread, but nobody waits for the thread at the end."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    context = contextvars.copy_context()

    def report(setter, value):
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: answer.done() or setter(value))

    def work():
        try:
            report(answer.set_result, context.run(call))
        except Exception as error:
            report(answer.set_exception, error)

    threading.Thread(target=work, daemon=True).start()
    return await answer


async def settled():
    """Lets tasks that were cancelled come to their end."""
    for _ in range(3):
        await asyncio.sleep(0)


def raises(error):
    raise error


def test_a_quick_call_gives_its_answer(within):
    assert within(Deadline(LONG), lambda: 42) == 42


def test_an_error_of_the_call_is_the_callers(within):
    with pytest.raises(KeyError, match="tea"):
        within(Deadline(LONG), lambda: raises(KeyError("tea")))


def test_a_timeout_error_of_the_call_is_not_taken_for_lateness(within):
    with pytest.raises(TimeoutError, match="theirs"):
        within(Deadline(LONG), lambda: raises(TimeoutError("theirs")))


def test_a_hanging_call_is_left_after_the_deadline(within, hold):
    began = time.monotonic()
    with pytest.raises(TooLate, match=r"no answer after 0\.\d\d s"):
        within(Deadline(SHORT), hold.wait)
    assert SHORT <= time.monotonic() - began < 2.0


def test_the_context_of_the_caller_is_copied(within):
    def rename():
        seen = name.get()
        name.set("somebody")
        return seen

    token = name.set("ann")
    try:
        assert within(Deadline(LONG), rename) == "ann"
        assert name.get() == "ann"
    finally:
        name.reset(token)


def test_a_call_that_loads_is_waited_for_beyond_the_deadline(within):
    def load():
        with loading():
            time.sleep(2 * ROOMY)
        return "loaded"

    assert within(Deadline(ROOMY, first_load=LONG), load) == "loaded"


def test_after_the_load_only_the_rest_of_the_deadline_is_left(within, hold):
    def load_and_hang():
        with loading():
            time.sleep(2 * ROOMY)
        hold.wait()

    with pytest.raises(TooLate, match="no answer"):
        within(Deadline(ROOMY, first_load=LONG), load_and_hang)


def test_a_load_without_end_is_waited_for_at_most_first_load(within, hold):
    def load_for_ever():
        with loading():
            hold.wait()

    began = time.monotonic()
    with pytest.raises(TooLate, match=r"still loading after 0\.\d\d s"):
        within(Deadline(ROOMY, first_load=2 * ROOMY), load_for_ever)
    assert 2 * ROOMY <= time.monotonic() - began < 2.0


def test_a_first_load_shorter_than_the_deadline_does_not_shorten_it(within):
    def load():
        with loading():
            time.sleep(2 * SHORT)
        return "loaded"

    assert within(Deadline(LONG, first_load=SHORT), load) == "loaded"


@pytest.mark.parametrize("seconds", [None, math.inf])
def test_without_a_limit_the_call_runs_where_the_caller_is(seconds):
    deadline = Deadline(seconds)

    async def which():
        return asyncio.current_task()

    async def main():
        return await deadline.arun(which) is asyncio.current_task()

    assert deadline.run(threading.current_thread) is threading.current_thread()
    assert asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, r"deadline must be a number of seconds > 0, got 0\."),
        ({"seconds": -1.0}, r"got -1\.0"),
        ({"seconds": math.nan}, "got nan"),
        ({"seconds": "1"}, "got '1'"),
        ({"seconds": True}, "got True"),
        ({"first_load": -1}, "first_load must be a number of seconds >= 0"),
        ({"first_load": None}, "got None"),
        ({"queue": -1}, "queue must be a number of seconds >= 0"),
    ],
)
def test_limits_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Deadline(**arguments)


def test_of_many_threads_none_is_turned_away():
    deadline = Deadline(LONG)
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(deadline.run(lambda: n)))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(40))


def test_a_late_error_is_thrown_away(hold, monkeypatch):
    unhandled = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    ended = threading.Event()

    def fail_late():
        try:
            hold.wait()
            raise OSError("late")
        finally:
            ended.set()

    with pytest.raises(TooLate):
        Deadline(SHORT).run(fail_late)
    hold.set()
    ended.wait()
    assert Deadline(LONG).run(lambda: 42) == 42
    assert unhandled == []


async def test_a_task_that_swallows_its_cancellation_does_not_hold_the_turn():
    release, heard = asyncio.Event(), []

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                heard.append("cancelled")

    with pytest.raises(TooLate):
        await Deadline(SHORT).arun(stubborn)
    await settled()
    assert heard == ["cancelled"]
    release.set()
    await settled()


async def test_a_late_task_that_is_loading_is_left_to_finish_and_its_error_is_thrown_away():
    release, outcome, problems = asyncio.Event(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))

    async def load():
        with loading():
            await release.wait()
        outcome.append("loaded")
        raise OSError("nobody hears this")

    with pytest.raises(TooLate, match="still loading"):
        await Deadline(ROOMY, first_load=ROOMY).arun(load)
    gc.collect()
    release.set()
    await settled()
    gc.collect()
    assert outcome == ["loaded"]
    assert problems == []


async def test_cancelling_the_turn_cancels_the_call():
    began, heard = asyncio.Event(), []

    async def wait_for_ever():
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    turn = asyncio.ensure_future(Deadline(LONG).arun(wait_for_ever))
    await began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await settled()
    assert heard == ["cancelled"]


async def test_a_cancellation_inside_the_call_does_not_look_like_one_of_the_turn():
    async def cancelled_inside():
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled from within"):
        await Deadline(LONG).arun(cancelled_inside)


def test_the_process_ends_although_a_worker_hangs():
    code = (
        "import threading\n"
        "from langmem_recall.deadline import Deadline, TooLate\n"
        "try:\n"
        "    Deadline(0.01).run(threading.Event().wait)\n"
        "except TooLate as late:\n"
        "    print(late)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.startswith("no answer after 0.")
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_all_its_workers():
    code = (
        "import os, threading\n"
        "from langmem_recall.deadline import Deadline, TooLate\n"
        "try:\n"
        "    Deadline(0.01).run(threading.Event().wait)\n"
        "except TooLate:\n"
        "    pass\n"
        "child = os.fork()\n"
        "if child:\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "else:\n"
        "    os._exit(Deadline(60.0).run(lambda: 7))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "7"


# --- shares of the time, and our own queue ---


def test_a_late_call_says_what_still_hangs(within, hold):
    with pytest.raises(TooLate) as late:
        within(Deadline(SHORT), hold.wait)
    assert late.value.pending is not None


def test_what_a_turn_can_do_without_is_given_up_before_its_time_is():
    def shares():
        progress = limited()
        with at_most(0.5):
            half = progress.part_patience()
            with at_most(0.25):
                quarter = progress.part_patience()
        return half, quarter, progress.is_part, progress.patience()

    half, quarter, is_part, whole = Deadline(40.0).run(shares)
    assert (half, quarter) == (pytest.approx(20, abs=2), pytest.approx(10, abs=2))
    assert not is_part
    assert whole == pytest.approx(40, abs=2)


def test_time_in_our_own_queue_is_not_counted():
    gate, holder = Gate(1), CallProgress(Deadline(LONG))

    def queued():
        with gate.enter(limited()):
            return "through"

    with gate.enter(holder):
        answers: list[str] = []
        waiter = threading.Thread(
            target=lambda: answers.append(Deadline(ROOMY, queue=LONG).run(queued))
        )
        waiter.start()
        threading.Event().wait(2 * ROOMY)
    waiter.join()
    assert answers == ["through"]
    assert gate.free == 1


def test_a_queue_that_does_not_move_is_left_and_its_place_with_it():
    gate, holder = Gate(1), CallProgress(Deadline(LONG))

    def queued():
        with gate.enter(limited()):
            return "through"

    with gate.enter(holder):
        with pytest.raises(Crowded, match="too much to do at once"):
            Deadline(LONG, queue=SHORT).run(queued)
        assert gate.free == 0
    assert gate.free == 1
    assert Deadline(LONG, queue=SHORT).run(queued) == "through"


async def test_an_awaited_queue_is_left_when_the_turn_is_cancelled():
    gate, holder = Gate(1), CallProgress(Deadline(LONG))

    async def queued():
        async with gate.aenter(limited()):
            return "through"

    with gate.enter(holder):
        turn = asyncio.ensure_future(Deadline(LONG, queue=LONG).arun(queued))
        while not gate._waiting:
            await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await settled()
    assert gate.free == 1
    assert await Deadline(LONG, queue=SHORT).arun(queued) == "through"


def test_who_loads_makes_room_for_others():
    gate = Gate(1)

    def load():
        with gate.enter(limited()), loading():
            return gate.free

    assert Deadline(LONG).run(load) == 1
    assert gate.free == 1


def test_a_call_that_hangs_is_left_with_its_place(hold):
    gate = Gate(1)

    def hang():
        with gate.enter(limited()):
            hold.wait()

    with pytest.raises(TooLate):
        Deadline(SHORT).run(hang)
    assert gate.free == 1


class Seconds:
    """A clock that is turned by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def breaker(seconds):
    return Breaker(clock=seconds)


def opened(breaker):
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    return breaker


def test_the_third_failure_in_a_row_opens_it(breaker):
    breaker.failed()
    breaker.failed()
    assert (breaker.state, breaker.allows()) == ("closed", True)
    breaker.failed()
    assert (breaker.state, breaker.allows()) == ("open", False)


def test_as_many_successes_as_failures_keep_it_closed_and_one_failure_more_opens_it(breaker):
    for _ in range(5):
        breaker.succeeded()
        breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"


def test_failures_of_long_ago_no_longer_count(breaker, seconds):
    for _ in range(10):
        breaker.failed()
        seconds.now += 31.0
        assert breaker.state == "closed"


def test_while_eight_calls_hang_no_other_is_made(breaker, hold):
    for _ in range(4):
        breaker.succeeded()
    hung = [Pending(start(hold.wait)) for _ in range(8)]
    for pending in hung:
        assert breaker.allows()
        breaker.succeeded()
        breaker.failed(pending)
    assert (breaker.state, breaker.allows()) == ("closed", False)
    hold.set()
    for pending in hung:
        pending.wait(lambda: LONG)
    assert breaker.allows()


def test_after_the_rest_exactly_one_probe_passes(breaker, seconds):
    opened(breaker)
    seconds.now += 29.9
    assert not breaker.allows()
    seconds.now += 0.1
    assert breaker.state == "half-open"
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    assert breaker.state == "half-open"


def test_a_probe_that_succeeds_closes_it(breaker, seconds):
    opened(breaker)
    seconds.now += 30
    assert breaker.allows()
    breaker.succeeded()
    assert (breaker.state, breaker.allows(), breaker.allows()) == ("closed", True, True)


def test_a_probe_that_fails_opens_it_for_another_rest(breaker, seconds):
    opened(breaker)
    seconds.now += 30
    assert breaker.allows()
    seconds.now += 5
    breaker.failed()
    assert (breaker.state, breaker.allows()) == ("open", False)
    seconds.now += 29.9
    assert not breaker.allows()
    seconds.now += 0.1
    assert breaker.allows()


def test_late_failures_of_older_calls_do_not_put_the_probe_off(breaker, seconds):
    opened(breaker)
    seconds.now += 20
    breaker.failed()
    seconds.now += 10
    assert breaker.allows()


def test_a_probe_that_never_reports_is_replaced_after_a_rest(breaker, seconds):
    opened(breaker)
    seconds.now += 30
    assert breaker.allows()
    seconds.now += 29.9
    assert not breaker.allows()
    seconds.now += 0.1
    assert breaker.allows()


def test_of_many_threads_one_gets_the_probe(breaker, seconds):
    opened(breaker)
    seconds.now += 30
    together, answers = threading.Barrier(8), []

    def ask():
        together.wait()
        answers.append(breaker.allows())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]
