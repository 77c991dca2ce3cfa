# SPDX-License-Identifier: BSD-3-Clause
"""What `await work` runs: the library's thread tells the event loop when the call is over. Nothing polls."""

import asyncio


def awaiting(work):
    """Ends with the result of the call, or raises its error."""
    if not work.test():
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def settle():
            if not future.done():
                future.set_result(None)

        def tell():
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits
                pass

        work.notify(tell)
        yield from future
    work.wait()
    return work.result
