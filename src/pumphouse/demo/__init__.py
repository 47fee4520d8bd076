"""The main job on an in-process account: publish events, handle them in order, and check it all.

`events` reads them, `service` sends and handles them, `report` says what came of each. How that is
shown on a terminal is `cli/demo.py`.
"""
