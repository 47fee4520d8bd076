"""How a running app is: for people, probes and supervisors.

`state.py` says what is told, `monitor.py` reads it off an app, `server.py` answers probes.

```python
async with app.running(backend):
    with HealthServer(Monitor(app), port=8080):
        ...
```
"""

from pumphouse.health.monitor import Monitor
from pumphouse.health.server import HealthServer
from pumphouse.health.state import QueueState, Snapshot, WorkerState, merge

__all__ = ["HealthServer", "Monitor", "QueueState", "Snapshot", "WorkerState", "merge"]
