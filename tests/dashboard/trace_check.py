"""What Chrome's trace viewer and Perfetto need of a trace that is one JSON object, checked strictly.

    self.assertEqual(problems(json.loads(text)), [])
"""

KEYS = {"X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}, "M": {"ph", "name", "pid", "tid", "args"}}


def whole(value):
    """A number of microseconds, or of a process: no float, no true."""
    return type(value) is int and value >= 0


def problems(trace):
    """A line for each fault; none for a good trace."""
    events = trace.get("traceEvents")
    if not isinstance(events, list) or not events:
        return ["traceEvents is not a list with events"]
    found = [fault for number, event in enumerate(events) for fault in event_faults(number, event)]
    return found or name_faults(events) + nesting_faults(events)


def event_faults(number, event):
    kind = event.get("ph")
    if kind not in KEYS:
        return [f"event {number}: ph is {kind!r}, not X or M"]
    faults = [f"event {number}: {key} is missing or unknown" for key in KEYS[kind] ^ set(event)]
    numbers = {"pid", "tid"} | ({"ts", "dur"} if kind == "X" else set())
    faults += [f"event {number}: {key} is {event[key]!r}, not a whole number of at least 0"
               for key in sorted(numbers & set(event)) if not whole(event[key])]
    if not isinstance(event.get("name"), str) or not event["name"]:
        faults.append(f"event {number}: without a name")
    return faults


def name_faults(events):
    """Every process and thread has exactly one name."""
    names = [(event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else None)
             for event in events if event["ph"] == "M"]
    spans = [event for event in events if event["ph"] == "X"]
    needed = {("process_name", event["pid"], None) for event in spans}
    needed |= {("thread_name", event["pid"], event["tid"]) for event in spans}
    faults = [f"{what} of process {pid}, thread {tid}: missing" for what, pid, tid in sorted(needed - set(names), key=str)]
    faults += [f"{what} of process {pid}, thread {tid}: twice" for what, pid, tid in set(names)
               if names.count((what, pid, tid)) > 1]
    return faults


def nesting_faults(events):
    """Two spans of a thread are beside each other, or one is inside the other."""
    faults, open_until = [], {}
    spans = [event for event in events if event["ph"] == "X"]
    for event in sorted(spans, key=lambda span: (span["pid"], span["tid"], span["ts"], -span["dur"])):
        ends = open_until.setdefault((event["pid"], event["tid"]), [])
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        end = event["ts"] + event["dur"]
        if ends and end > ends[-1]:
            faults.append(f"{event['name']} of process {event['pid']}, thread {event['tid']} at {event['ts']} ends at {end},"
                          f" after the span around it, which ends at {ends[-1]}")
        ends.append(end)
    return faults
