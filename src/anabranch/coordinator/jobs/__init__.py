"""Jobs: work beside the steps that goes on over many events.

Each job owns its state: nobody else changes it. It reacts to the events that concern it
(``handle``), says when time alone concerns it (``wakes_at``), and tells at the end which requests
it leaves unanswered (``withdraw``).
"""
