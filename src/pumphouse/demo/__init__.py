"""The main job on an in-process account: publish events, handle them in order, and check it all.

`service` sends the events and handles them, `report` says what came of each, `sample` has some.
How events are read is `jsonl.py`, how all of it is shown `cli/demo.py`.
"""
