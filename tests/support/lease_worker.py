"""A worker process over a served endpoint, which writes down what it does: `lease_worker.py …`.

Each line of its ledger is `TIME KIND GROUP NUMBER`: S when a lease is in a worker's hands, E when
the worker is done and before it settles, A after a confirmed ack, N after a nack, L for a lost
lease.
The time is CLOCK_MONOTONIC in nanoseconds, one clock for all processes of a machine. A line is one
write to a file, so it survives SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

from pumphouse import LeaseTransport
from pumphouse.errors import ClosedError, LeaseLostError, PumphouseError
from pumphouse.protocol.sigv4 import Keys


async def main(url: str, queue: str, ledger: str, visibility: str, tasks: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(kind: str, group: str, number: int) -> None:
        os.write(file, f"{time.monotonic_ns()} {kind} {group} {number}\n".encode())

    transport: LeaseTransport[int] = await LeaseTransport.create(
        queue, region="us-east-1", endpoint_url=url, credentials=Keys("any", "any")
    )

    async def work(name: str) -> None:
        while not stop.is_set():
            try:
                lease = await transport.claim(name, int(visibility))
            except ClosedError:
                return
            if lease is None:
                continue
            write("S", lease.group_id, lease.event)
            await asyncio.sleep(random.choice((0, 0, 0.001, 0.004)))
            write("E", lease.group_id, lease.event)
            try:
                if random.random() < 0.01:
                    await transport.nack(lease, random.choice((0, 0, 1)))
                    write("N", lease.group_id, lease.event)
                else:
                    await transport.ack(lease)
                    write("A", lease.group_id, lease.event)
            except LeaseLostError:
                write("L", lease.group_id, lease.event)
            except PumphouseError as error:
                write("L", lease.group_id, lease.event)
                print(f"{name}: {error!r}", file=sys.stderr, flush=True)

    await asyncio.gather(*(work(f"{os.getpid()}-{index}") for index in range(int(tasks))))
    await transport.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
